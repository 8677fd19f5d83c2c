#include "emulator/ptx/symbols.h"

#include <cxxabi.h>
#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>

#include "core/error.h"
#include "emulator/device.h"

extern "C" {
extern const char __executable_start[];  // defined by the linker
}

namespace qtrain::emulation::ptx {
namespace {

template <class T>
T read_at(const std::string& file, std::size_t at) {
  check(at + sizeof(T) <= file.size(), "the executable is truncated");
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

}  // namespace

Symbols::Symbols() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  const auto section = [&](std::size_t n) {
    return read_at<Elf64_Shdr>(file, header.e_shoff + n * header.e_shentsize);
  };
  const std::uintptr_t base = header.e_type == ET_DYN ? reinterpret_cast<std::uintptr_t>(__executable_start) : 0;
  for (std::size_t n = 0; n < header.e_shnum; ++n) {
    const Elf64_Shdr table = section(n);
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr strings = section(table.sh_link);
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(file, table.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      names_.emplace(at_address(base + symbol.st_value), file.c_str() + strings.sh_offset + symbol.st_name);
    }
  }
}

const std::string& Symbols::at(const void* function) const {
  const auto known = names_.find(function);
  check(known != names_.end(), "the executable has no symbol for a kernel; it must not be stripped");
  return known->second;
}

std::string plain_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? plain.get() : mangled;
  constexpr std::string_view kOfDriver = "CUtensorMap_st", kOfHarness = "qtrain::emulation::TensorMap";
  for (std::size_t at = name.find(kOfDriver); at != name.npos; at = name.find(kOfDriver, at))
    name.replace(at, kOfDriver.size(), kOfHarness);
  return name;
}

std::string short_name(const std::string& mangled) {
  std::string name = plain_name(mangled);
  int depth = 0;
  for (std::size_t at = 0; at < name.size(); ++at) {  // the parameters: the first parenthesis outside of <>
    depth += (name[at] == '<') - (name[at] == '>');
    const bool unnamed = std::string_view(name).substr(at).starts_with("(anonymous namespace)");
    if (name[at] == '(' && depth == 0 && !unnamed) name.resize(at);
  }
  for (const char* what : {R"(^void )", R"(\(anonymous namespace\)::)", R"(\([\w ]+\)(?=\d))", R"(\bqtrain::(ops::)?)"})
    name = std::regex_replace(name, std::regex(what), "");
  return name;
}

}  // namespace qtrain::emulation::ptx
