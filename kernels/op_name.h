#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace qtrain::ops {

/// The name of an argument struct without its namespace, as the compiler prints it: "RmsNormGrad".
template <class Args>
constexpr std::string_view type_name() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;  // "... [with Args = qtrain::ops::RmsNormGrad; ...]"
  constexpr std::size_t begin = text.find("Args = ") + std::string_view("Args = ").size();
  constexpr std::string_view name = text.substr(begin, text.find_first_of(";]", begin) - begin);
  return name.substr(name.rfind(':') + 1);
}

template <class Args>
inline constexpr auto kSnakeCase = [] {
  constexpr std::string_view type = type_name<Args>();
  std::array<char, 2 * type.size() + 1> name{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < type.size(); ++i) {
    const bool upper = type[i] >= 'A' && type[i] <= 'Z';
    if (upper && i > 0) name[n++] = '_';
    name[n++] = upper ? static_cast<char>(type[i] - 'A' + 'a') : type[i];
  }
  return name;
}();

/// "rms_norm_grad" for RmsNormGrad, with static storage.
template <class Args>
constexpr const char* op_name() {
  return kSnakeCase<Args>.data();
}

}  // namespace qtrain::ops
