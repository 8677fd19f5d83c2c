#pragma once
#include <map>
#include <string>

namespace qtrain::emulation::ptx {

/// The functions of this program, including file-local ones, from the symbol table of its executable.
class Symbols {
 public:
  Symbols();
  /// Returns the mangled name; throws an Error if the symbol table lacks it.
  const std::string& at(const void* function) const;

 private:
  std::map<const void*, std::string> names_;
};

/// Demangled, without the compiler's names for unnamed namespaces, and with the harness's name of tensor maps.
std::string plain_name(const std::string& mangled);
/// "attention_delta<8, Bf16>": without parameters and the namespaces of this program, as in
/// kernels/cuda/kernel_resources.csv.
std::string short_name(const std::string& mangled);

}  // namespace qtrain::emulation::ptx
