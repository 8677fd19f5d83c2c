#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// An expression in the syntax of tokenizer.json (Oniguruma, Ruby flavor) as one for PCRE2 with PCRE2_UTF, PCRE2_UCP
/// and PCRE2_MULTILINE that matches the same. Character classes are spelled out, so that the Unicode version of PCRE2
/// does not matter. Errors (ErrorKind::input): constructs whose meaning differs and that no rewriting covers.
std::string to_pcre2(std::string_view pattern);

}  // namespace qtrain
