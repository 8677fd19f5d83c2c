// Rows of CSV, Arrow and Parquet files compared with those that datasets, pyarrow and pandas read
// (make_source_goldens.py).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <ctime>
#include <tuple>

#include "core/parallel.h"
#include "data/listing.h"
#include "data/row_shapes.h"
#include "data/source/batched_rows.h"
#include "data/source/doubtful_row.h"
#include "data/source/mixture.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::filesystem::path source_file(const std::string& name) {
  return test::golden_folder() / "sources" / name;
}

Json source_goldens(const char* name) {
  return read_json(source_file(name));
}

/// Key order must be equal too, and numbers must agree in whether they are integers.
void expect_rows(const RawRows& rows, const Json& expected) {
  ASSERT_EQ(rows.size(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(dump_json(rows.parse(i)), dump_json(expected[static_cast<std::size_t>(i)])) << rows.place(i);
}

RawRows rows_in(const std::string& name, Split split = Split::train) {
  return RawRows(resolve_data_files({source_file(name).string()}, split));
}

TEST(Sources, CsvAndSavedFoldersAreReadAsDatasetsReadsThem) {
  const Json goldens = source_goldens("rows.json");
  for (const Json& golden : goldens) {
    SCOPED_TRACE(golden["file"]);
    expect_rows(rows_in(golden["file"]), golden["rows"]);
  }
  EXPECT_EQ(goldens.size(), 14u);
}

TEST(Sources, ArrowAndParquetAreReadAsPyarrowReadsThem) {
  const Json goldens = source_goldens("tables.json");
  std::size_t files = 0;
  for (const Json& golden : goldens)
    for (const Json& file : golden["files"]) {
      SCOPED_TRACE(file);
      ++files;
      expect_rows(rows_in(file), golden["rows"]);
    }
  EXPECT_EQ(files, 23u);
}

class BrokenSources : public test::DataFolder {
 protected:
  /// The error from reading all rows of the file.
  std::string complaint(const std::string& name, std::string_view contents) const {
    const std::string path = write(name, contents);
    return test::error_of(ErrorKind::input, [&] {
      const RawRows rows({path});
      for (std::int64_t i = 0; i < rows.size(); ++i) rows.parse(i);
    });
  }
  static std::string contents(const std::string& name) { return read_text(source_file(name)); }
};

TEST_F(BrokenSources, CsvErrorsNameTheLine) {
  EXPECT_THAT(complaint("a.csv", "a,b\n\n1,\"x\ny\"\n1,2,3\n"),
              HasSubstr("a.csv:5: the row has 3 fields, but the header has 2"));
  EXPECT_THAT(complaint("a.csv", "a,b\n1,2\n3,\"open\n\n"), HasSubstr("a.csv:3: a quoted field is not closed"));
  EXPECT_THAT(complaint("a.csv", "a,b\n1,2\n3,\xff\n"), HasSubstr("a.csv:3: column 'b' is not UTF-8"));
  EXPECT_THAT(complaint("a.csv", "\n \n"), HasSubstr("empty"));
}

TEST_F(BrokenSources, FilesThatWereCutShortSaySo) {
  for (const char* name : {"stream.arrow", "zstd.arrow", "snappy.parquet"}) {
    const std::string whole = contents(name);
    for (const std::size_t size : {whole.size() - 700, whole.size() / 2, std::size_t{100}, std::size_t{9}})
      EXPECT_THAT(complaint(name, whole.substr(0, size)), HasSubstr(std::string(name) + ": damaged ")) << size;
    EXPECT_THAT(complaint(name, "x" + whole), HasSubstr("the contents do not match the file extension"));
  }
}

TEST_F(BrokenSources, DamagedPagesAndBatchesNameRowAndColumn) {
  std::string bytes = contents("gzip_groups.parquet");
  bytes[bytes.size() / 4] ^= 0x55;
  EXPECT_THAT(complaint("a.parquet", bytes), AllOf(HasSubstr("a.parquet:row 18, column '"), HasSubstr("damaged")));
  bytes = contents("stream.arrow");
  bytes[bytes.find("naïve") + 3] = '\xff';
  EXPECT_THAT(complaint("a.arrow", bytes), AllOf(HasSubstr("a.arrow:row "), HasSubstr("text is not UTF-8")));
}

/// Appends little-endian numbers.
template <class... T>
void put(std::string& out, T... numbers) {
  (out.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
}

struct SharedParts {
  std::uint32_t fields, name_bytes, metadata;
};

/// An Arrow stream with only a schema, whose boolean fields all refer to one table with one name and one list of
/// metadata.
std::string stream_of_shared_parts(SharedParts parts) {
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  using u32 = std::uint32_t;
  std::string b;
  const auto patch = [&](std::size_t at) {  // writes an offset to the current end
    const auto distance = static_cast<u32>(b.size() - at);
    b.replace(at, 4, reinterpret_cast<const char*>(&distance), 4);
  };
  const auto offset = [&] {
    put(b, u32{0});
    return b.size() - 4;
  };
  const std::size_t root = offset();
  put(b, u16{12}, u16{16}, u16{4}, u16{6}, u16{8}, u16{0});
  patch(root);
  put(b, u32{12}, u16{4}, u8{1}, u8{0});
  const std::size_t header = offset();
  put(b, u32{0}, u16{8}, u16{8}, u16{0}, u16{4});
  patch(header);
  put(b, u32{8});
  const std::size_t fields = offset();
  patch(fields);
  put(b, parts.fields);
  const std::size_t first = b.size();
  b.append(4 * parts.fields, '\0');
  put(b, u16{18}, u16{16}, u16{4}, u16{0}, u16{8}, u16{0}, u16{0}, u16{0}, u16{12}, u16{0});
  for (std::size_t at = first; at < first + 4 * parts.fields; at += 4) patch(at);
  put(b, u32{20});
  const std::size_t name = offset();
  put(b, u32{6});
  const std::size_t metadata = offset();
  patch(name);
  put(b, parts.name_bytes);
  b.append(parts.name_bytes, 'x');
  patch(metadata);
  put(b, parts.metadata);
  const std::size_t pairs = b.size();
  b.append(4 * parts.metadata, '\0');
  put(b, u16{4}, u16{4});
  for (std::size_t at = pairs; at < pairs + 4 * parts.metadata; at += 4) patch(at);
  put(b, u32{4});
  std::string out;
  put(out, u32{0xffffffff}, static_cast<u32>(b.size()));
  return out + b;
}

TEST_F(BrokenSources, PartsThatManyFieldsShareAreCountedEachTime) {
  EXPECT_EQ(RawRows({write("few.arrow", stream_of_shared_parts({.fields = 2, .name_bytes = 9, .metadata = 3}))}).size(),
            0);
  EXPECT_THAT(complaint("a.arrow", stream_of_shared_parts({.fields = 200, .name_bytes = 1, .metadata = 100})),
              HasSubstr("a.arrow: damaged Arrow schema: too many fields"));
  EXPECT_THAT(complaint("a.arrow", stream_of_shared_parts({.fields = 200, .name_bytes = 60'000, .metadata = 0})),
              HasSubstr("names are too long"));
  EXPECT_THAT(complaint("a.arrow", stream_of_shared_parts({.fields = 1, .name_bytes = 70'000, .metadata = 0})),
              HasSubstr("names are too long"));
}

TEST_F(BrokenSources, BooleansOfThriftMapsTakeAByteEach) {
  std::string bytes = contents("snappy.parquet");
  std::uint32_t size = 0;
  std::memcpy(&size, bytes.data() + bytes.size() - 8, 4);
  const std::string_view map("\x0b\0\2\x11\1\2\2\1", 8);  // a field that the format does not define
  bytes.insert(bytes.size() - 8 - size, map);
  size += static_cast<std::uint32_t>(map.size());
  bytes.replace(bytes.size() - 8, 4, reinterpret_cast<const char*>(&size), 4);
  EXPECT_EQ(RawRows({write("a.parquet", bytes)}).size(), 40);
}

TEST(Sources, BytesOfRowsAreThoseOfWhatIsDecoded) {
  EXPECT_GE(rows_in("long_rows.parquet").bytes(2), 20'000);
  EXPECT_LT(rows_in("long_rows.parquet").bytes(2), 25'000);
  const std::int64_t plain = rows_in("stream.arrow").bytes(39), packed = rows_in("zstd.arrow").bytes(39);
  EXPECT_GT(packed, plain * 7 / 8);
  EXPECT_LT(packed, plain * 2);
}

/// Batches of two rows that count how often they were decoded.
class CountingRows final : public BatchedRows {
 public:
  struct Bytes {
    std::uint64_t said, held;
  };
  CountingRows(int batches, Bytes bytes) : BatchedRows({.name = "rows", .bytes = 1u << 30}), held_(bytes.held) {
    for (int i = 0; i < batches; ++i) add_batch(2, bytes.said);
  }
  std::string_view format() const override { return "rows"; }
  mutable int decoded = 0;

 private:
  struct Batch final : RowBatch {
    using RowBatch::RowBatch;
    Json row(std::int64_t row) const override { return row; }
  };
  void release_batch(std::size_t) const override {}
  std::shared_ptr<const RowBatch> load(std::size_t) const override {
    ++decoded;
    return std::make_shared<Batch>(RowBatch::Size{.memory = held_, .repeated = 0});
  }
  std::uint64_t held_;
};

TEST(Sources, SmallBatchesStayForAllThreadsLargeOnesDoNot) {
  const CountingRows small(6, {1000, 1000}), large(6, {1u << 30, 1u << 30}), larger_than_said(6, {1000, 1u << 30});
  for (const CountingRows* rows : {&small, &large, &larger_than_said})
    for (std::int64_t turn = 0; turn < 4; ++turn)
      for (std::int64_t row = turn % 2; row < 12; row += 2) EXPECT_EQ(rows->parse(row), turn % 2);
  EXPECT_EQ(small.decoded, 6);
  EXPECT_EQ(large.decoded, 24);
  EXPECT_EQ(larger_than_said.decoded, 24);
}

TEST(Sources, AParquetFileMayHaveNoRows) {
  EXPECT_EQ(rows_in("empty.parquet").size(), 0);
}

TEST_F(BrokenSources, AnswersOfCsvFilesThatLookLikeOtherTypesStayText) {
  const RawRows rows({write("a.csv", "prompt,completion\nIs it?,None\n1+1,2\n0.50,TRUE\n")});
  for (const auto& [row, prompt, answer] : {std::tuple{0, "Is it?", "None"}, {1, "1+1", "2"}, {2, "0.50", "TRUE"}}) {
    const Sample sample = read_sample(rows.parse(row), {});
    EXPECT_EQ(sample.prompt, prompt);
    EXPECT_EQ(sample.text, answer);
  }
}

TEST_F(BrokenSources, ValuesThatAreNoJsonMatterOnlyToWhoReadsThem) {
  const std::pair<const char*, const char*> unread[] = {
      {"nan", R"("score":NaN)"},
      {"infinity", R"("score":-Infinity)"},
      {"huge", R"("score":1e999)"},
      {"nested", R"("meta":{"a":[1,{"b":NaN}],"c":"NaN, \"Infinity\" ["})"},
      {"duplicate", R"("meta":{"k":1,"k":2})"},
      {"duplicate_column", R"("id":1,"id":2)"},
      {"in_a_list", R"("scores":[0.5,Infinity,-1E+400])"},
  };
  for (const auto& [name, member] : unread)
    for (const bool array : {false, true}) {
      const std::string row = std::string(R"({"text":"a \" b",)") + member + R"(,"last":[1]})",
                        file = array ? "[" + row + "]" : row + "\n";
      const RawRows rows({write(std::string(name) + ".json", file)});
      const Json parsed = rows.parse(0);
      EXPECT_EQ(read_sample(parsed, {}).text, "a \" b") << name;
      EXPECT_EQ(parsed["last"], Json::array({1})) << name;
      const std::string key = std::string(member).substr(1, std::string(member).find('"', 1) - 1);
      EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read_sample(parsed, {.text_field = key}); }),
                  HasSubstr("'" + key + "': "))
          << name;
      EXPECT_NO_THROW(dump_json(parsed));
    }
  const std::pair<const char*, const char*> read[] = {
      {R"({"text":NaN})", "'text': NaN is not a JSON number"},
      {R"({"text":"a","text":"b"})", "'text': the key is given twice"},
      {R"({"messages":[{"role":"user","content":"a","content":"b"}]})", "key \"content\" is given twice"},
      {R"({"messages":[{"role":"user","content":NaN}]})", "NaN is not a JSON number"},
      {R"({"input_ids":[1,NaN]})", "'input_ids': NaN is not a JSON number"},
      {R"({"prompt":"a","completion":1e999})", "'completion': "},
  };
  for (const auto& [row, what] : read) {
    const RawRows rows({write("read.jsonl", row)});
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read_sample(rows.parse(0), {}); }), HasSubstr(what)) << row;
  }
  for (const char* broken : {R"({"text":"a","score":NaN)", R"({"text":"a","score":nan})", R"({"text":"a",,"b":NaN})",
                             R"({"text":"a","score":NaN} x)", R"({"text":"a","b":[1,2,NaN})", R"({"a":1,"b":tru})"})
    EXPECT_THAT(complaint("broken.jsonl", broken), HasSubstr("broken.jsonl:1")) << broken;
}

TEST_F(BrokenSources, RowsOfManyKeysTakeNoLongerIfOneIsGivenTwice) {
  std::string row = R"({"text":"a")";
  for (int i = 0; i < 100'000; ++i) row += fmt::format(",\"k{}\":0", i);
  const std::string file = write("rows.jsonl", row + ",\"k7\":1}\n");
  const std::clock_t begin = std::clock();
  const Json read = RawRows({file}).parse(0);
  EXPECT_EQ(read.at("text"), "a");
  EXPECT_EQ(doubt_of(read.at("k7")), "the key is given twice");
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC);
}

TEST_F(BrokenSources, TheFirstVersionOfFeatherIsNamed) {
  EXPECT_THAT(complaint("a.feather", std::string("FEA1\0\0\0\0", 8)), HasSubstr("Feather version 1 is not supported"));
  EXPECT_THAT(complaint("b.feather", "text"), HasSubstr("the contents do not match the file extension"));
}

TEST_F(BrokenSources, AFooterThatLeadsElsewhereIsAnError) {
  const std::string whole = contents("polars.arrow");
  const std::size_t end = whole.size() - 10;
  std::uint32_t footer = 0;
  std::memcpy(&footer, whole.data() + end, 4);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{10}, std::size_t{40}, std::size_t{80}}) {
    std::string broken = whole;
    std::memset(broken.data() + (end - footer) + at, 0x7f, 4);
    const std::string path = write("broken.arrow", broken);
    const std::string said = test::error_if_any(ErrorKind::input, [&] {
      const RawRows rows({path});
      for (std::int64_t i = 0; i < rows.size(); ++i) rows.parse(i);
    });
    EXPECT_THAT(said, ::testing::AnyOf(HasSubstr("Arrow"), HasSubstr("no error"))) << at;
  }
  std::string long_footer = whole;
  std::memset(long_footer.data() + end, 0x7f, 4);
  EXPECT_THAT(complaint("a.arrow", long_footer), HasSubstr("the size of its footer"));
}

// deltas.arrow without its first dictionaries, and deltas_file.arrow with a delta that is marked as a whole dictionary.
TEST_F(BrokenSources, DictionariesThatGrowFromNothingOrBeginTwiceAreRefused) {
  EXPECT_THAT(complaint("a.arrow", contents("deltas_headless.arrow")),
              HasSubstr("it extends a dictionary that it does not have"));
  const std::string whole = contents("deltas_file.arrow");
  int twice = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (whole[at] != 1) continue;
    std::string changed = whole;
    changed[at] = 0;
    const std::filesystem::path path = write("b.arrow", changed);
    const std::string said = test::error_if_any(ErrorKind::input, [&] {
      const RawRows rows({path});
      for (std::int64_t i = 0; i < rows.size(); ++i) rows.parse(i);
    });
    twice += said.find("it contains a dictionary twice") != std::string::npos;
  }
  EXPECT_GE(twice, 4);
}

TEST_F(BrokenSources, TheDelimiterOfATableIsFoundInItsHeader) {
  const std::pair<const char*, const char*> tables[] = {
      {"a.csv", "Frage;Antwort\nq, r;a\n"},     {"b.csv", "Frage\tAntwort\n\"q, r\"\ta\n"},
      {"c.csv", "Frage|Antwort\nq, r|a\n"},     {"d.csv", "Frage,Antwort\n\"q, r\",a\n"},
      {"e.tsv", "Frage,Antwort\n\"q, r\",a\n"}, {"f.csv", "\n\"Frage\";\"Antwort\"\r\n\"q, r\";a\r\n"},
      {"g.tsv", "Frage\tAntwort\nq, r\ta\n"},
  };
  for (const auto& [name, contents] : tables)
    EXPECT_EQ(RawRows({write(name, contents)}).parse(0), (Json{{"Frage", "q, r"}, {"Antwort", "a"}})) << name;
  EXPECT_EQ(RawRows({write("h.csv", "\"a;b\",c\n1,2\n")}).parse(0), (Json{{"a;b", "1"}, {"c", "2"}}));
  EXPECT_EQ(RawRows({write("i.csv", "a;b,c\n1,2\n")}).parse(0), (Json{{"a;b", "1"}, {"c", "2"}}));
  EXPECT_EQ(RawRows({write("j.csv", "text\na;b\n")}).parse(0), (Json{{"text", "a;b"}}));
}

TEST_F(BrokenSources, WhatIsNotReadIsNamed) {
  for (const auto& [file, what] :
       {std::pair{"views.arrow", "view_bytes (binary_view), price (decimal), both (union), pairs (map)"},
        {"long_rows.parquet", "raw (binary), when (time or decimal)"}}) {
    const std::vector<ListedData> listed = list_data(source_file(file), {.text_field = "absent"});
    EXPECT_THAT(listed.at(0).problem, HasSubstr(std::string("columns that are not read: ") + what)) << file;
  }
  EXPECT_THAT(complaint("a.parquet", contents("brotli.parquet")), AllOf(HasSubstr("Brotli"), HasSubstr("snappy")));
}

TEST(Sources, RowsOfSeveralBatchesAreReadFromSeveralThreads) {
  const RawRows rows = rows_in("gzip_groups.parquet");
  const std::string expected = dump_json(rows.parse(39));
  ThreadPool pool(4);
  std::vector<std::string> seen(400);
  pool.run(400, [&](std::int64_t i, int) { seen[static_cast<std::size_t>(i)] = dump_json(rows.parse(i * 7 % 40)); });
  for (std::int64_t i = 0; i < 400; ++i)
    ASSERT_EQ(seen[static_cast<std::size_t>(i)], dump_json(rows.parse(i * 7 % 40)));
  EXPECT_EQ(seen[17], expected);
}

MixStrategy strategy_named(const std::string& name) {
  if (name == "first_exhausted") return MixStrategy::first_exhausted;
  return name == "all_exhausted" ? MixStrategy::all_exhausted : MixStrategy::all_exhausted_without_replacement;
}

TEST(Mixtures, RowsComeInTheOrderOfInterleaveDatasets) {
  for (const Json& golden : source_goldens("mixtures.json")) {
    MixRules rules{.strategy = strategy_named(golden["stop"])};
    if (!golden["weights"].is_null()) {
      for (const Json& weight : golden["weights"]) rules.probabilities.push_back(3 * weight.get<double>());
      rules.seed = golden["seed"];
    }
    std::vector<std::int64_t> sizes, begins;
    std::int64_t all = 0;
    for (const Json& size : golden["sizes"]) {
      begins.push_back(all);
      sizes.push_back(size);
      all += sizes.back();
    }
    const std::vector<std::int64_t> order = mixed_order(sizes, rules);
    ASSERT_EQ(order.size(), golden["size"].get<std::size_t>()) << golden["stop"] << golden["seed"];
    const Json &first = golden["first"], &last = golden["last"];
    const auto number = [&](const Json& at) { return begins[at[0].get<std::size_t>()] + at[1].get<std::int64_t>(); };
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_EQ(order[i], number(first[i])) << i;
    for (std::size_t i = 0; i < last.size(); ++i)
      ASSERT_EQ(order[order.size() - last.size() + i], number(last[i])) << i;
  }
}

}  // namespace
}  // namespace qtrain
