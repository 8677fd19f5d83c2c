// YAML configs become the same JSON document as with PyYAML's safe_load, with line numbers, and cannot do harm.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "config/yaml.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Json yaml(std::string_view text) {
  return parse_yaml(text, "c.yaml").value;
}

std::string complaint_of_yaml(std::string_view text) {
  return test::error_of(ErrorKind::usage, [&] { parse_yaml(text, "c.yaml"); });
}

TEST(Yaml, ScalarsAreThoseOfPyYaml) {
  EXPECT_EQ(yaml("{a: true, b: no, c: On, d: FALSE, e: y, f: 'yes'}"),
            Json::parse(R"({"a": true, "b": false, "c": true, "d": false, "e": "y", "f": "yes"})"));
  EXPECT_EQ(yaml("{a: 12, b: -3, c: +4, d: 1_000, e: '5', f: 12abc, g: 1.2.3}"),
            Json::parse(R"({"a": 12, "b": -3, "c": 4, "d": 1000, "e": "5", "f": "12abc", "g": "1.2.3"})"));
  EXPECT_EQ(yaml("{a: 1.0, b: 2.5e-3, c: .5, d: -1.}"), Json::parse(R"({"a": 1.0, "b": 2.5e-3, "c": 0.5, "d": -1.0})"));
  EXPECT_EQ(yaml("a:\nb: ~\nc: null\nd: ''\ne: none"),
            Json::parse(R"({"a": null, "b": null, "c": null, "d": "", "e": "none"})"));
}

// PyYAML reads a number in scientific notation without a decimal point as a string; trl, LLaMA-Factory and axolotl
// convert it to a number.
TEST(Yaml, NumbersNeedNoPoint) {
  EXPECT_EQ(yaml("lr: 2e-4").at("lr"), 2e-4);
  EXPECT_EQ(yaml("lr: 1E5").at("lr"), 1e5);
}

TEST(Yaml, WhatIsNoNumberOfOneMeaningStaysText) {
  for (const char* text : {"0123", "1e999", ".nan", ".inf", "e5", "1:30", "2026-01-02", "0x1f", "_1", "+-1"})
    EXPECT_EQ(yaml(fmt::format("a: {}", text)).at("a"), text);
}

TEST(Yaml, CollectionsCommentsAndBlocks) {
  EXPECT_EQ(yaml("# a\nlist:\n  - 1\n  - {x: [a, b]}  # c\ntext: |\n  one\n  two\nfold: >-\n  a\n  b\n"),
            Json::parse(R"({"list": [1, {"x": ["a", "b"]}], "text": "one\ntwo\n", "fold": "a b"})"));
  EXPECT_EQ(yaml("{\"a\": [1, 2], \"b\": {\"c\": null}}"), Json::parse(R"({"a": [1, 2], "b": {"c": null}})"));
}

TEST(Yaml, AliasesAreCopiedAndMappingsMerged) {
  EXPECT_EQ(yaml("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\nagain: *b"),
            Json::parse(R"({"base": {"x": 1, "y": 2}, "use": {"y": 3, "x": 1}, "again": {"x": 1, "y": 2}})"));
  EXPECT_EQ(yaml("a: &a {x: 1}\nb: &b {z: 3}\nc:\n  <<: *a\n  <<: *b").at("c"), Json::parse(R"({"x": 1, "z": 3})"));
  EXPECT_EQ(yaml("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc:\n  <<: [*a, *b]").at("c"), Json::parse(R"({"x": 1, "z": 3})"));
}

TEST(Yaml, KeysHaveLines) {
  const ConfigDocument d = parse_yaml("a: 1\n\nb:\n  c:\n    - d: 1\n  e: 2\n", "c.yaml");
  EXPECT_EQ(d.place_of("a"), "c.yaml:1");
  EXPECT_EQ(d.place_of("b.c"), "c.yaml:4");
  EXPECT_EQ(d.place_of("b.e"), "c.yaml:6");
  EXPECT_EQ(d.place_of("b.c.d"), "c.yaml:4");  // inside a list: the line of the list
  EXPECT_EQ(d.place_of("zz"), "c.yaml");
}

TEST(YamlErrors, NameTheLine) {
  EXPECT_EQ(complaint_of_yaml("a: 1\nb: 2\na: 3"), "c.yaml:3: key \"a\" is given twice");
  EXPECT_THAT(complaint_of_yaml("a: 1\n b: 2\n"), StartsWith("c.yaml:2: invalid YAML: "));
  EXPECT_THAT(complaint_of_yaml("a: [1, 2\nb: 3"), StartsWith("c.yaml:2: invalid YAML: "));
  EXPECT_THAT(complaint_of_yaml("a: 1\nb: *nothing"), StartsWith("c.yaml:2: invalid YAML: "));
  EXPECT_THAT(complaint_of_yaml("a: 1\nb: !!python/object/apply:os.system [ls]"),
              StartsWith("c.yaml:2: unknown tag tag:yaml.org,2002:python/object/apply:os.system"));
  EXPECT_THAT(complaint_of_yaml("a: 1\n? [x]\n: 2"), HasSubstr("a key must be a plain or quoted word"));
  EXPECT_THAT(complaint_of_yaml("a: 1\n: 2"), HasSubstr("a key is empty"));
  EXPECT_THAT(complaint_of_yaml("a: 1\n---\nb: 2"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(complaint_of_yaml("x:\n  <<: 3"), StartsWith("c.yaml:2: << takes a mapping"));
  for (const char* empty : {"", "\n\n", "# only this\n"}) EXPECT_THAT(complaint_of_yaml(empty), HasSubstr("is empty"));
}

TEST(YamlErrors, HostileTextEndsQuickly) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int k = 0; k < 10; ++k) bomb += fmt::format("*a{}, ", i - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(complaint_of_yaml(bomb), HasSubstr("more than 10000 values"));
  std::string copies = "a: &a " + std::string(200'000, 'x') + "\nb: [";
  for (int i = 0; i < 9000; ++i) copies += "*a,";
  EXPECT_THAT(complaint_of_yaml(copies + "1]"), HasSubstr("more than 4194304 bytes of keys and values"));
  EXPECT_THAT(complaint_of_yaml("a: &a [1, *a]"), HasSubstr("an alias that contains itself"));
  EXPECT_THAT(complaint_of_yaml("a: " + std::string(70, '[') + std::string(70, ']')),
              HasSubstr("nested deeper than 64"));
  EXPECT_THAT(complaint_of_yaml("a: " + std::string(100'000, '[')), HasSubstr("c.yaml"));
  EXPECT_THAT(complaint_of_yaml("a: " + std::string(100'000, '{')), HasSubstr("c.yaml"));
  EXPECT_THAT(complaint_of_yaml(std::string(2u << 20, 'a')), HasSubstr("larger than"));
  EXPECT_THAT(complaint_of_yaml("a: 1\nb: \x04\nc: 3"), StartsWith("c.yaml:2: a control character (0x04)"));
  EXPECT_THAT(complaint_of_yaml(std::string("a: 1\0b", 6)), HasSubstr("a control character (0x00)"));
  EXPECT_THAT(complaint_of_yaml("a: \xff\xfe"), HasSubstr("invalid UTF-8"));
}

// The lines of keys are kept by their paths. A long key is a part of the paths of all keys below it.
TEST(YamlErrors, LinesOfKeysTakeNoMoreThanTheFile) {
  const std::string key(100'000, 'k');
  std::string members;
  for (int i = 0; i < 5000; ++i) members += fmt::format("{}\"a{}\": 1", i == 0 ? "" : ", ", i);
  const std::string outer = key.substr(0, 900);
  const std::pair<const char*, std::string> configs[] = {
      {"c.json", fmt::format("{{\"short\": 1, \"{}\": {{\"{}\": {{{}}}}}}}", outer, key, members)},
      {"c.yaml", fmt::format("short: 1\n{}:\n  ? {}\n  : {{{}}}\n", outer, key, members)}};
  for (const auto& [name, text] : configs) {
    const ConfigDocument document = parse_config_document(text, name);
    std::size_t bytes = 0;
    for (const auto& [path, line] : document.lines) bytes += path.size();
    EXPECT_LT(bytes, text.size()) << name;
    EXPECT_EQ(document.lines.at("short"), 1) << name;
  }
}

TEST(YamlConfig, IsAConfigLikeAnyOther) {
  const ResolvedConfig c = parse_config(
      "# trl sft --config\nmodel_name_or_path: m\ndataset_name: d.jsonl\nlearning_rate: 2e-4\nbf16: no\n"
      "lr_scheduler_kwargs:\n  num_cycles: 2\nlr_scheduler_type: cosine\n",
      "c.yaml", {{"max_steps", "7"}});
  EXPECT_EQ(c.dialect, "hf");
  EXPECT_EQ(c.value.training.learning_rate, 2e-4);
  EXPECT_FALSE(c.value.training.bf16);
  EXPECT_EQ(c.value.training.max_steps, 7);
  EXPECT_EQ(c.origin.at("learning_rate"), "c.yaml:4");
  EXPECT_EQ(c.origin.at("lr_scheduler_kwargs"), "c.yaml:6");
  EXPECT_EQ(c.origin.at("max_grad_norm"), "default (hf)");
}

// In YAML, `no` is a boolean, but people write it for the strategies.
TEST(YamlConfig, NoIsAStrategy) {
  const Config c = parse_config("eval_strategy: no\nsave_strategy: no\nlogging_strategy: no\n", "c.yml").value;
  EXPECT_EQ(c.training.eval_strategy, EvalStrategy::no);
  EXPECT_EQ(c.training.save_strategy, SaveStrategy::no);
  EXPECT_EQ(c.training.logging_strategy, EvalStrategy::no);
}

TEST(YamlConfig, DataSetsOfTrl) {
  const Config c = parse_config(
                       "datasets:\n  - path: json\n    data_files: [a.jsonl, b.jsonl]\n  - path: rows\n"
                       "  - path: json\n    data_files: {train: c.jsonl, test: d.jsonl}\n"
                       "test_split_size: 0.1\n",
                       "c.yaml")
                       .value;
  EXPECT_THAT(c.data.dataset_name, ::testing::ElementsAre("a.jsonl", "b.jsonl", "rows", "c.jsonl"));
  EXPECT_EQ(c.data.eval_split, 0.1);
}

}  // namespace
}  // namespace qtrain
