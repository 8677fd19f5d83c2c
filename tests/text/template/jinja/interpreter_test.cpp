#include "text/template/jinja/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/errors.h"
#include "text/template/jinja/parser.h"

namespace qtrain {
namespace {

using testing::HasSubstr;

std::string rendering_of(const std::string& source) {
  const ParsedTemplate parsed = parse_template(source);
  return TemplateRun(parsed, 0).render().text;
}

std::string repeated(std::string_view piece, int times = 100'000) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(Template, HostileTemplatesEnd) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too many steps"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"},
      {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "nested too deeply"},
      {"{{ 'a' * 10 ** 12 }}", "too large"},
      {"{{ [1] * 10 ** 12 }}", "too large"},
      {"{{ 'a'.ljust(10 ** 12) }}", "too large"},
      {"{{ '%1000000000s' % 'a' }}", "too large"},
      {"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "too large"},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "too large"},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
       "too"},
      {"{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(99) %}{% set a.s = [a.s, a.s] %}"
       "{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}",
       "too"},
      {"{{ range(10 ** 9) }}", "Range too big"},
      {"{{ 2 ** 1000 }}", "127 bits"},
      {"{{ " + repeated("(") + "1" + repeated(")") + " }}", "too deeply"},
      {"{{ " + repeated("-") + "1 }}", "too deeply"},
      {"{{ 1" + repeated("+") + "1 }}", "too deeply"},
      {"{{ x" + repeated(".a") + " }}", "too many"},
      {"{{ 1" + repeated("+1") + " }}", "too many"},
      {"{{ " + repeated("not ") + "1 }}", "too deeply"},
      {"{{ " + repeated("1 if 0 else ") + "1 }}", "too deeply"},
      {"{{ 1" + repeated("|string") + " }}", "too many"},
      {repeated("{% if 1 %}"), "too deeply"},
      {"{{ 'a'.replace('', 'x' * 10000000) * 9 }}", "too large"}};
  for (const auto& [source, why] : cases)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { rendering_of(source); }), HasSubstr(why))
        << source.substr(0, 100);
}

// A row of operators in each of some parentheses: neither is much, and the tree would be 18'000 nodes high.
TEST(Template, TreesOfRowsInParenthesesAreAsHighAsJinjaAllows) {
  const std::string row = repeated("+1", 300);
  for (const auto& [begin, end] : std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                                                   {"[", "][0]"},
                                                                                   {"[0, ", "][1]"},
                                                                                   {"{1: ", "}[1]"},
                                                                                   {"f(", ")"},
                                                                                   {"f(a=", ")"},
                                                                                   {"f(*", ")"},
                                                                                   {"f(**", ")"},
                                                                                   {"1|default(", ")"},
                                                                                   {"1 is eq(", ")"},
                                                                                   {"x[1:", "]"},
                                                                                   {"x[0, ", "]"},
                                                                                   {"1 ~ (", ")"},
                                                                                   {"1 < (", ")"},
                                                                                   {"(1 if 0 else ", ")"}}) {
    const std::string source = "{{ " + repeated(begin, 30) + "1" + repeated(row + end, 30) + " }}";
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { parse_template(source); }), HasSubstr("too many operators"))
        << begin;
  }
  EXPECT_EQ(rendering_of("{{ 0" + repeated("+1", 490) + " }}"), "490");  // one more is too much for Jinja
}

}  // namespace
}  // namespace qtrain
