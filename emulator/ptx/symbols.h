#pragma once
#include <map>
#include <string>

namespace qtrain::emulation::ptx {

/// The functions of this program, also those that only their file sees, by the table of its executable.
class Symbols {
 public:
  Symbols();
  /// The mangled name; an Error where the table does not have it.
  const std::string& at(const void* function) const;

 private:
  std::map<const void*, std::string> names_;
};

/// Demangled, and so without what compilers name unnamed namespaces.
std::string plain_name(const std::string& mangled);

}  // namespace qtrain::emulation::ptx
