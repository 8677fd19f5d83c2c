#include "text/template/jinja/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "tests/errors.h"
#include "text/template/jinja/parser.h"

namespace qtrain {
namespace {

using testing::HasSubstr;

std::string rendering_of(const std::string& source, PyLimits limits = {}) {
  const ParsedTemplate parsed = parse_template(source);
  return TemplateRun(parsed, 0, limits).render().text;
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

/// An operation in a loop that would run it ten billion times.
std::string often(const std::string& expression) {
  return "{% for i in range(99999) %}{% for j in range(99999) %}{% if " + expression +
         " %}{% endif %}{% endfor %}{% endfor %}";
}

/// Each takes time that grows with its operands. These have a sixtieth of the largest size, and so has the limit; that
/// of steps ends the loop soon if an operation is not charged.
TEST(Template, OperationsAreChargedForTheirOperands) {
  const std::string a = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}", d = a + "{% set d = {a: 1} %}",
                    e = "{% set a = '\u00e9' * 500000 %}";
  const std::string sources[] = {a + often("a == b"),      a + often("a < b"),
                                 a + often("a|length"),    e + often("a[499999]"),
                                 e + often("a|last"),      a + often("a[1:]"),
                                 d + often("d[b]"),        d + often("d.get(b)"),
                                 a + often("a|safe"),      a + often("a|upper"),
                                 a + often("a.lower()"),   a + often("a|title"),
                                 a + often("a is lower"),  a + often("a.islower()"),
                                 a + often("a.isascii()"), "{% set a = ' ' * 1000000 %}" + often("a|int"),
                                 a + often("a|float")};
  const PyLimits limits{.steps = 10'000, .made = PyLimits().made / 60};
  for (const std::string& source : sources)
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { rendering_of(source, limits); }), HasSubstr("too much"))
        << source;
}

/// When only steps were counted, each of these ran forever, crashed the program, or took gigabytes.
TEST(Template, WorkIsCountedNotOnlySteps) {
  const std::string a = "{% set a = 'a' * 60000000 %}{% set b = 'a' * 60000000 %}",
                    needle = "{% set a = 'a' * 60000000 %}{% set b = 'a' * 10000000 ~ 'b' %}",
                    last = "{% set a = 'a' * 60000000 %}{% set b = 'b' ~ 'a' * 10000000 %}",
                    ns = "{% set ns = namespace(s=1) %}";
  const auto nested = [&](const std::string& inner, int times) {
    return ns + repeated("{% for i in range(99999) %}{% set ns.s = " + inner + " %}{% endfor %}", times);
  };
  struct Case {
    std::string name, source;
    const char* why;  ///< expected error; "" if there is none
  };
  const Case cases[] = {
      {"equal", a + often("a == b"), "too much"},
      {"copies", a + often("a|safe"), "too much"},
      {"prefixes", a + "{% set t = (b ~ 'c',) * 1000000 %}" + often("(a ~ 'd').startswith(t)"), "too"},
      {"in", needle + "{{ b in a }}", ""},
      {"find", needle + "{{ a.find(b) }}", ""},
      {"rfind", last + "{{ a.rfind(b) }}", ""},
      {"count", needle + "{{ a.count(b) }}", ""},
      {"replace", needle + "{{ a.replace(b, '')|length }}", ""},
      {"partition", needle + "{{ a.partition(b)|length }}", ""},
      {"split by long", needle + "{{ a.split(b)|length }}", ""},
      {"strip", "{% set a = 'a' * 60000000 %}{{ a.strip('b' * 1000000 ~ 'a')|length }}", ""},
      {"split", a + "{{ a.split('a')|length }}", "too large"},
      {"rsplit", a + "{{ a.rsplit('a')|length }}", "too large"},
      {"words", "{% set a = 'a ' * 30000000 %}{{ a.split()|length }}", "too large"},
      {"lines", "{% set a = '\\n' * 60000000 %}{{ a.splitlines()|length }}", "too large"},
      {"indent", "{% set a = '\\n' * 60000000 %}{{ a|indent }}", "too large"},
      {"strftime", "{{ strftime_now('%c' * 10000000) }}", "too large"},
      {"escape", "{% set a = '<' * 60000000 %}{{ a|e }}", "too large"},
      {"sum", "{% set l = [1] * 2000000 %}" + often("l|sum"), "too"},
      {"deep lists", nested("[ns.s]", 4), ""},
      {"deep tuples", nested("(ns.s,)", 4), ""},
      {"deep dicts", nested("{'a': ns.s}", 4), ""},
      {"deep methods", nested("{'a': ns.s}.get", 4), ""},
      {"deep views", nested("{'a': ns.s}.items()", 4), ""},
      {"deep generators", nested("ns.s|string|map('upper')", 1), ""},
      {"generators of generators", nested("[1]|map('string') if ns.s == 1 else ns.s|map('string')", 1), "deeply"},
      {"namespaces", nested("namespace(s=ns.s)", 1), "too many namespaces"},
      {"keys that are deep", nested("(ns.s,)", 4) + "{{ {ns.s: 1} }}", "too deeply"},
      {"keys of many parts", ns + "{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}",
       "too many steps"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::clock_t start = std::clock();
    const std::string said = test::error_if_any(ErrorKind::input, [&] { rendering_of(c.source); });
    EXPECT_THAT(said, HasSubstr(*c.why ? c.why : "no error"));
    EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
  }
}

TEST(Template, ManyTurnsOfALongConversationAreRendered) {
  std::string source = "{% set turns = ['" + repeated("some words of a turn ", 100) + "'] * 2000 %}";
  source += "{% for t in turns %}{% set ns = namespace(text=t) %}{% if 'words' in ns.text and ns.text|length > 9 %}";
  source +=
      "{{ loop.index ~ ns.text|trim|upper }}{{ ns.text.split(' ')|map('lower')|list|join(' ') }}{% endif %}{% endfor "
      "%}";
  EXPECT_GT(rendering_of(source).size(), 8'000'000u);
}

TEST(Template, TextIsFoundWhereverItIs) {
  for (const int size : {1, 3, 32, 33, 40, 200}) {
    std::string wanted;
    for (int i = 0; i < size; ++i) wanted += static_cast<char>('a' + i % 23);
    const std::string set = "{% set w = '" + wanted + "' %}{% set t = 'zz' ~ w ~ 'zzz' ~ w ~ 'z' %}";
    const std::string places = std::to_string(2) + " " + std::to_string(5 + size) + " 2 True ";
    EXPECT_EQ(rendering_of(set + "{{ t.find(w) }} {{ t.rfind(w) }} {{ t.count(w) }} {{ w in t }} {{ t.split(w) }}" +
                           " {{ t.rsplit(w, 1)|length }} {{ t.rsplit(w)|join('-') }} {{ t.rpartition(w)[2] }}" +
                           " {{ t.replace(w, '.') }} {{ t.find(w ~ '!') }} {{ t.rfind(w ~ '!') }}"),
              places + "['zz', 'zzz', 'z'] 2 zz-zzz-z z zz.zzz.z -1 -1")
        << size;
  }
}

// A row of operators, in each of several nested parentheses: neither is large alone, but the tree would be 18,000 nodes
// high.
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
