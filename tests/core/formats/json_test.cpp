#include "core/formats/json_items.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "core/formats/json_view.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct BadText {
  const char* text;
  const char* place;
  const char* cause;
};

class BadJson : public ::testing::TestWithParam<BadText> {};

TEST_P(BadJson, IsRefusedWithItsPlace) {
  const auto& bad = GetParam();
  const auto error = error_of([&] { parse_json(bad.text, "x.json"); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_EQ(error.text().place, bad.place);
  EXPECT_THAT(error.text().cause, HasSubstr(bad.cause));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadJson,
    ::testing::Values(
        BadText{"", "x.json:1:1", "empty"}, BadText{" \n ", "x.json:2:2", "empty"},
        BadText{"[1,]", "x.json:1:4", "trailing comma"}, BadText{"{\"a\": 1,\n}", "x.json:2:1", "trailing comma"},
        BadText{"{\"a\":NaN}", "x.json:1:6", "NaN is not a JSON number"},
        BadText{"[-Infinity]", "x.json:1:3", "-Infinity is not a JSON number"}, BadText{"1e999", "x.json:1:5", "1e999"},
        BadText{"\"\xff\"", "x.json:1:2", "UTF-8"}, BadText{"\"\xed\xa0\x80\"", "x.json:1:3", "UTF-8"},
        BadText{"\"\\ud800\"", "x.json:1:8", "surrogate"}, BadText{"[1] x", "x.json:1:5", "expected end of input"},
        BadText{"{a:1}", "x.json:1:2", "invalid"}, BadText{"[1,2", "x.json:1:5", "unexpected end"},
        BadText{"'a'", "x.json:1:1", "invalid"}, BadText{"\n\n  [1 2]", "x.json:3:6", "expected ']'"},
        BadText{"01", "x.json:1:2", "end of input"}, BadText{"// no\n1", "x.json:1:1", "comments are not allowed"},
        BadText{"{\"a\":1,\n\"b\":2,\n \"a\":3}", "x.json:3:4", "\"a\" is given twice (first on line 1)"},
        BadText{"[{\"k\":{\"x\":1,\"x\":1}}]", "x.json:1:16", "\"x\" is given twice"}));

TEST(Json, NameThatEndsInALineGetsTheColumnOnly) {
  const auto error = error_of([] { parse_json("[1,]", "rows.jsonl:12"); });
  EXPECT_EQ(error.text().place, "rows.jsonl:12:4");
}

TEST(Json, BlameIsTheCallersChoice) {
  EXPECT_EQ(error_of([] { parse_json("[", "c.json", {.blame = ErrorKind::usage}); }).kind(), ErrorKind::usage);
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "x"));
  EXPECT_THAT(error_of([&] { parse_json(nested(65), "x"); }).what(), HasSubstr("deeper than 64"));
  EXPECT_THAT(error_of([] { parse_json(std::string(5'000'000, '['), "x"); }).what(), HasSubstr("deeper than 64"));
  EXPECT_NO_THROW(parse_json(nested(100), "x", {.max_depth = 100}));
}

TEST(Json, TheNumberOfValuesIsLimited) {
  EXPECT_NO_THROW(parse_json("[1,{\"a\":2}]", "x", {.max_values = 4}));
  EXPECT_THAT(error_of([] { parse_json("[1,{\"a\":2}]", "x", {.max_values = 3}); }).what(),
              HasSubstr("more than 3 values"));
}

TEST(Json, CommentsWhereAllowed) {
  const auto json = parse_json("// one\n{\"a\": /* two */ 1, // three\n \"u\": \"http://x\"}", "x", {.comments = true});
  EXPECT_EQ(dump_json(json), R"({"a": 1, "u": "http://x"})");
}

TEST(Json, KeysOutsideListsHaveLines) {
  std::map<std::string, int> lines;
  parse_json("{\"a\": 1, // one\n\n\"b\": {\"c\": [{\"d\": 1}],\n\"e\": 2}}", "c.json",
             {.comments = true, .key_lines = &lines});
  EXPECT_EQ(lines, (std::map<std::string, int>{{"a", 1}, {"b", 3}, {"b.c", 3}, {"b.e", 4}}));
}

TEST(Json, LastDuplicateWinsInTheFirstPlaceWhereAllowed) {
  const auto json = parse_json(R"({"a":1,"b":2,"a":3})", "x", {.duplicate_keys = true});
  EXPECT_EQ(dump_json(json), R"({"a": 3, "b": 2})");
}

TEST(Json, KeysKeepTheirOrder) {
  EXPECT_EQ(dump_json(parse_json(R"({"z":1,"a":2,"m":{"y":1,"b":2}})", "x")),
            R"({"z": 1, "a": 2, "m": {"y": 1, "b": 2}})");
}

TEST(Json, DumpsAsPythonDoes) {
  std::ifstream file(QTRAIN_SOURCE_DIR "/tests/core/goldens/json_dumps.jsonl");
  std::string line;
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
    const auto row = parse_json(line, "golden");
    const auto value = parse_json(row["text"].get<std::string>(), "text");
    EXPECT_EQ(dump_json(value), row["plain"].get<std::string>());
    EXPECT_EQ(dump_json(value, 0), row["indent0"].get<std::string>());
    EXPECT_EQ(dump_json(value, 2), row["indent2"].get<std::string>());
  }
  EXPECT_EQ(rows, 11);
}

TEST(Json, LargeObjectsTakeLinearTime) {
  std::ostringstream text;
  text << "{\"model\":{\"vocab\":{";
  for (int i = 0; i < 200'000; ++i) text << (i ? "," : "") << "\"token" << i << "\":" << i;
  text << "}}}";
  const auto begin = std::chrono::steady_clock::now();
  const auto json = parse_json(text.str(), "x");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));  // quadratic: minutes
  EXPECT_EQ(json["model"]["vocab"].size(), 200'000u);
  EXPECT_EQ(json["model"]["vocab"].back(), 199'999);
}

TEST(Json, HandsOverTheValuesOfOneListOneByOne) {
  std::vector<std::string> taken;
  const JsonItems items{.list = "many", .take = [&](const Json& value) { taken.push_back(dump_json(value)); }};
  const TempFolder folder;
  const auto parse = [&](const char* text) {
    write_file(folder / "a.json", text);
    return read_json_items(folder / "a.json", items);
  };
  const Json json = parse(R"({"few": [1], "many": [{"a": [2, {"many": [3]}]}, 4, []], "in": {"many": [5]}})");
  EXPECT_EQ(taken, (std::vector<std::string>{R"({"a": [2, {"many": [3]}]})", "4", "[]"}));
  EXPECT_EQ(dump_json(json), R"({"few": [1], "many": [], "in": {"many": [5]}})");
  parse(R"([["many", [1]]])");
  EXPECT_EQ(taken.size(), 3u);
}

TEST(JsonView, NamesThePlaceOfWhatIsMissingOrOfAnotherType) {
  const Json json = parse_json(R"({"a": {"b": [1, "x", 18446744073709551615, 0.5]}, "none": null})", "x");
  const JsonView view(json);
  EXPECT_EQ(view.at("a").at("b").entry(0).integer({0, 1}), 1);
  EXPECT_EQ(view.text("none", "otherwise"), "otherwise");
  const auto said = [](auto&& f) { return std::string(error_of(f).what()); };
  EXPECT_THAT(said([&] { view.at("a").at("b").entry(1).number(); }), HasSubstr("a.b[1]: must be a number, not \"x\""));
  EXPECT_THAT(said([&] { view.at("a").at("b").entry(2).integer({0, 9}); }), HasSubstr("a.b[2]: must be an integer"));
  EXPECT_THAT(said([&] { view.at("a").at("b").entry(3).integer({0, 9}); }), HasSubstr("not 0.5"));
  EXPECT_THAT(said([&] { view.at("a").at("b").entry(4); }), HasSubstr("more than 4"));
  EXPECT_THAT(said([&] { view.at("a").flag(); }), HasSubstr("a: must be true or false, not an object"));
  EXPECT_THAT(said([&] { view.at("none"); }), HasSubstr("\"none\" is missing"));
  const auto raw = error_of([&] { reading("f.json", [&] { return json["a"]["b"].get<int>(); }); });
  EXPECT_EQ(raw.kind(), ErrorKind::input);
  EXPECT_THAT(raw.what(), ::testing::AllOf(HasSubstr("f.json"), ::testing::Not(HasSubstr("json.exception"))));
}

TEST(Json, ReadsRegularFilesOnly) {
  TempFolder folder;
  write_file(folder / "a.json", "{\"a\": 1}");
  EXPECT_EQ(read_json(folder / "a.json")["a"], 1);
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_json(folder / "fifo", {.blame = ErrorKind::usage}); }).what(),
              HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { read_json(folder.path()); }).what(), HasSubstr("is a folder"));
  const auto missing = error_of([&] { read_json(folder / "none.json", {.blame = ErrorKind::usage}); });
  EXPECT_EQ(missing.kind(), ErrorKind::input);
  EXPECT_THAT(missing.what(), HasSubstr("no such file"));
  EXPECT_THAT(error_of([&] { read_json(folder / "a.json", {.max_bytes = 7}); }).what(), HasSubstr("8 bytes"));
}

TEST(Json, WhateverIsInATextIsReadInTime) {
  EXPECT_EQ(json_in("{\"a\": 1, \"a\": 2}"), Json({{"a", 2}}));
  for (const char* text : {"", "{\"a\": ", "\xff", "[1] 2", "NaN"}) EXPECT_EQ(json_in(text), Json()) << text;
  std::string keys = "{\"\": 0";
  for (int i = 0; i < 300'000; ++i) keys += ", \"k" + std::to_string(i) + "\": 0";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(json_in(keys + "}").size(), 300'001u);
  EXPECT_EQ(json_in(std::string(10'000'000, '[')), Json());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace qtrain
