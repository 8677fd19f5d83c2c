#include "model/lora_init.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace qtrain {
namespace {

constexpr std::string_view kIterations = "pissa_niter_";
constexpr int kMaxIterations = 1000;

struct Named {
  LoraInit::Kind kind;
  Json value;
};

const std::vector<Named>& names() {
  static const std::vector<Named> kNames{{LoraInit::Kind::standard, true},       {LoraInit::Kind::random, false},
                                         {LoraInit::Kind::gaussian, "gaussian"}, {LoraInit::Kind::pissa, "pissa"},
                                         {LoraInit::Kind::olora, "olora"},       {LoraInit::Kind::loftq, "loftq"}};
  return kNames;
}

}  // namespace

std::optional<LoraInit> LoraInit::parse(const Json& value) {
  for (const Named& named : names())
    if (named.value == value) return LoraInit{.kind = named.kind};
  if (!value.is_string()) return {};
  const std::string_view text = value.get_ref<const std::string&>();
  if (!text.starts_with(kIterations)) return {};
  const std::string_view number = text.substr(kIterations.size());
  int iterations = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), iterations);
  const bool is_number = error == std::errc() && end == number.data() + number.size() && !number.empty();
  if (!is_number || iterations < 0 || iterations > kMaxIterations) return {};
  return LoraInit{.kind = Kind::pissa, .iterations = iterations};
}

Json LoraInit::json() const {
  if (iterations) return fmt::format("{}{}", kIterations, *iterations);
  for (const Named& named : names())
    if (named.kind == kind) return named.value;
  return {};
}

}  // namespace qtrain
