#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// Translates an expression from the syntax of tokenizer.json (Oniguruma, Ruby flavor) to an equivalent one for PCRE2
/// with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE. Character classes are spelled out, so that the Unicode version of
/// PCRE2 does not matter. Throws ErrorKind::input for constructs that differ and cannot be rewritten.
std::string to_pcre2(std::string_view pattern);

}  // namespace qtrain
