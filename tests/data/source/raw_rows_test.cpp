#include "data/source/raw_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Reader : public test::DataFolder {
 protected:
  std::vector<std::string> names(const std::vector<std::string>& entries, Split split = Split::train) const {
    std::vector<std::string> out;
    for (const auto& path : resolve_data_files(entries, split))
      out.push_back(path.lexically_relative(folder_).string());
    return out;
  }
  RawRows rows(std::string_view contents) const { return RawRows({write("rows.jsonl", contents)}); }
};

std::string gzip(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST_F(Reader, LinesEndAtLineFeedOnlyAndEmptyOnesAreSkipped) {
  const RawRows r = rows("\xef\xbb\xbf{\"a\":1}\r\n\n   \n{\"a\":\"x\xe2\x80\xa8y\xc2\x85z\"}\n{\"a\":3}");
  ASSERT_EQ(r.size(), 3);
  EXPECT_EQ(r.parse(0)["a"], 1);
  EXPECT_EQ(r.parse(1)["a"], "x\xe2\x80\xa8y\xc2\x85z");
  EXPECT_THAT(r.place(1), HasSubstr("rows.jsonl:4"));
  EXPECT_THAT(r.place(2), HasSubstr("rows.jsonl:5"));
}

TEST_F(Reader, JsonArraysAreReadWithTheLineOfEachElement) {
  const RawRows r = rows("\n[ {\"a\": [1, {\"b\": \"]},\\\"[\"}]},\n\n {\"a\":\n 2} , {\"a\":3}\n]\n");
  ASSERT_EQ(r.size(), 3);
  EXPECT_EQ(r.parse(0)["a"][1]["b"], "]},\"[");
  EXPECT_EQ(r.parse(1)["a"], 2);
  EXPECT_EQ(r.parse(2)["a"], 3);
  EXPECT_THAT(r.place(1), HasSubstr(":4"));
  EXPECT_THAT(r.place(2), HasSubstr(":5"));
  EXPECT_EQ(rows("[]").size(), 0);
}

TEST_F(Reader, BrokenArraysNameTheLine) {
  for (const char* text : {"[{},\n{}", "[{},\n]", "[\n,{}]", "[{\n}}]", "[{}]\n{}", "[\n{\"a\":\"x]", "[\n{\"a\":[}"})
    EXPECT_THAT(test::error_of(ErrorKind::input,
                               [&] {
                                 const RawRows r = rows(text);
                                 for (std::int64_t i = 0; i < r.size(); ++i) r.parse(i);
                               }),
                HasSubstr("rows.jsonl:"))
        << text;
}

TEST_F(Reader, RowsThatAreNoObjectNameFileAndLine) {
  const RawRows r = rows("{\"a\":1}\n{\"a\":\n[1]\n");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { r.parse(1); }), HasSubstr("rows.jsonl:2"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { r.parse(2); }), HasSubstr("not a JSON object"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { r.parse(1); }), HasSubstr("one complete JSON object"));
}

TEST_F(Reader, CompressedFilesReadAsTheirContents) {
  const std::string text = "{\"a\":1}\n{\"a\":2}\n";
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    EXPECT_EQ(rows(packed).size(), 2);
    EXPECT_EQ(rows(packed + packed).size(), 4) << "consecutive members";
    for (std::size_t cut = 5; cut < packed.size(); cut += 3)
      EXPECT_THAT(test::error_of(ErrorKind::input, [&] { rows(packed.substr(0, packed.size() - cut + 4)); }),
                  HasSubstr("damaged compressed file"));
  }
}

TEST_F(Reader, CompressedCsvIsCsv) {
  for (const std::string& name :
       {write("rows.csv.gz", gzip("a,b\n1,x\n")), write("rows.tsv.zst", zstd("a\tb\n1\tx\n"))})
    EXPECT_EQ(dump_json(RawRows({name}).parse(0)), R"({"a": "1", "b": "x"})") << name;
}

// Expected rows are those of load_dataset("text") for the same bytes.
TEST_F(Reader, APlainTextHasARowForEachLine) {
  const std::string text = "one\r\ntwo\rthree\n\n four \xe2\x80\xa8x\nlast";
  for (const std::string& name : {write("t.txt", text), write("t.txt.gz", gzip(text))}) {
    const RawRows r({name});
    std::vector<std::string> lines;
    for (std::int64_t i = 0; i < r.size(); ++i) lines.push_back(r.parse(i)["text"]);
    EXPECT_THAT(lines, ElementsAre("one", "two", "three", "", " four \xe2\x80\xa8x", "last"));
    EXPECT_THAT(r.place(4), HasSubstr(":5"));
  }
  EXPECT_EQ(RawRows({write("end.txt", "a\n")}).size(), 1) << "the last line end ends a row";
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { RawRows({write("bad.txt", "a\n\xff\n")}).parse(1); }),
              HasSubstr("bad.txt:2: the line is not UTF-8"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { RawRows({write("j.txt", "{\"text\": \"a\"}\n")}); }),
              HasSubstr("j.txt:1: the file is named as plain text, but its lines are JSON objects"));
}

TEST_F(Reader, PlainTextsOfAFolderCountWhereThereIsNoOtherData) {
  for (const char* name : {"only/a.txt", "only/b.txt", "both/LICENSE.txt", "both/README.txt", "both/rows.jsonl"})
    write(name, "x");
  EXPECT_THAT(names({at("only")}), ElementsAre("only/a.txt", "only/b.txt"));
  EXPECT_THAT(names({at("both")}), ElementsAre("both/rows.jsonl"));
}

TEST_F(Reader, FilesThatCannotBeDataAreRefused) {
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { rows(" \n \n"); }), HasSubstr("empty"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { rows("\xff\xfe{\0}\0"); }), HasSubstr("UTF-16"));
  ASSERT_EQ(mkfifo(at("fifo.jsonl").c_str(), 0600), 0);
  test::error_of(ErrorKind::input, [&] { RawRows({at("fifo.jsonl")}); });
  write("rows.xlsx", "PK");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("rows.xlsx")}); }), HasSubstr("Save it as CSV"));
  write("rows.zip", "PK");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("rows.zip")}); }), HasSubstr("JSON Lines"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("none.jsonl")}); }), HasSubstr("no such file"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("*.csv.jsonl")}); }), HasSubstr("no file matches"));
  test::error_of(ErrorKind::usage, [&] { names({}); });
}

TEST_F(Reader, GlobsFoldersAndListsAreExpandedInOrderAndOnce) {
  for (const char* name :
       {"b.jsonl", "a.json", "c.txt", "deep/er/d.jsonl", "deep/e.ndjson.gz", ".hidden.jsonl", "x[1].jsonl"})
    write(name, "{}");
  EXPECT_THAT(names({at("?.json*")}), ElementsAre("a.json", "b.jsonl"));
  EXPECT_THAT(names({at("**/*.jsonl")}), ElementsAre("b.jsonl", "deep/er/d.jsonl", "x[1].jsonl"));
  EXPECT_THAT(names({at("x[1].jsonl")}), ElementsAre("x[1].jsonl")) << "a name that looks like a pattern";
  EXPECT_THAT(names({at("deep"), at("b.jsonl"), at("*.jsonl")}),
              ElementsAre("deep/e.ndjson.gz", "b.jsonl", "x[1].jsonl"));
  EXPECT_THAT(names({folder_.string()}), ElementsAre("a.json", "b.jsonl", "x[1].jsonl"));
}

TEST_F(Reader, AFolderNeverTrainsOnItsTestFiles) {
  for (const char* name :
       {"train-00001.jsonl", "train-00000.jsonl", "test.jsonl", "my_validation.jsonl", "contest.jsonl"})
    write(name, "{}");
  EXPECT_THAT(names({folder_.string()}), ElementsAre("train-00000.jsonl", "train-00001.jsonl"));
  EXPECT_THAT(names({folder_.string()}, Split::evaluation), ElementsAre("my_validation.jsonl"));
  write("other/contest.jsonl", "{}");
  write("other/test.jsonl", "{}");
  EXPECT_THAT(names({at("other")}), ElementsAre("other/contest.jsonl"));
  EXPECT_THAT(names({at("other")}, Split::evaluation), ElementsAre("other/test.jsonl"));
}

TEST_F(Reader, AFolderStandsForTheFormatThatMostOfItsFilesHave) {
  for (const char* name : {"a.parquet", "b.parquet", "a.jsonl", "cache-1.arrow", "cache-2.arrow", "cache-3.arrow"})
    write(name, "x");
  EXPECT_THAT(names({folder_.string()}), ElementsAre("a.parquet", "b.parquet"));
}

TEST_F(Reader, SavedFoldersAreReadAsTheirStateSays) {
  write("saved/dataset_info.json", "{}");
  write("saved/state.json", R"({"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]})");
  write("saved/data-2.arrow", "left over");
  EXPECT_THAT(names({at("saved")}), ElementsAre("saved/data-1.arrow", "saved/data-0.arrow"));
  for (const char* name : {"../secret.arrow", "..", ".", "", "/etc/passwd"}) {
    write("saved/state.json", fmt::format(R"({{"_data_files": [{{"filename": "{}"}}]}})", name));
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("saved")}); }), HasSubstr("_data_files")) << name;
  }
}

TEST_F(Reader, SavedFoldersWithOtherTypesAreRefused) {
  write("saved/dataset_info.json", "{}");
  for (const char* state : {"[]", "5", R"({"_data_files": 3})", R"({"_data_files": [{"filename": 3}]})"}) {
    write("saved/state.json", state);
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("saved")}); }), HasSubstr("state.json")) << state;
  }
  for (const char* dict : {"[1]", R"({"splits": [1]})", R"({"splits": "train/../.."})", R"({"splits": [".."]})",
                           R"({"splits": ["."]})", R"({"splits": ["/etc"]})"}) {
    write("dict/dataset_dict.json", dict);
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("dict")}); }), HasSubstr("dataset_dict.json")) << dict;
  }
}

TEST_F(Reader, OneOfSeveralSplitsIsTakenOnlyIfItIsNamedExactlySo) {
  const auto save = [&](const std::string& split) {
    write("dict/" + split + "/state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
  };
  const auto complaint = [&](const std::string& entry, Split split) {
    return test::error_of(ErrorKind::input, [&] { names({at(entry)}, split); });
  };
  for (const char* split : {"train", "train_small", "train_sft", "train_gen", "test_sft", "test"}) save(split);
  write("dict/dataset_dict.json", R"({"splits": ["train_small", "train", "test_sft"]})");
  EXPECT_THAT(names({at("dict")}), ElementsAre("dict/train/data.arrow"));
  EXPECT_THAT(names({at("dict")}, Split::evaluation), ElementsAre("dict/test_sft/data.arrow"));
  write("dict/dataset_dict.json", R"({"splits": ["train_sft", "test_sft", "train_gen"]})");
  EXPECT_THAT(complaint("dict", Split::train), HasSubstr("several splits match: train_gen, train_sft\n"));
  write("dict/dataset_dict.json", R"({"splits": ["test", "other"]})");
  EXPECT_THAT(names({at("dict")}, Split::evaluation), ElementsAre("dict/test/data.arrow"));
  write("dict/dataset_dict.json", R"({"splits": ["test", "test_sft"]})");
  EXPECT_THAT(complaint("dict", Split::train), HasSubstr("no train split in the folder; it has: test, test_sft"));
}

TEST_F(Reader, ASplitIsFoundByItsName) {
  for (const char* name : {"hub/data/train_sft-00000-of-00002.parquet", "hub/data/train_sft-00001-of-00002.parquet",
                           "hub/data/test_sft-00000-of-00001-0123456789abcdef.parquet",
                           "hub/data/train_gen-00000-of-00001.parquet", "plain/validation.jsonl", "plain/test.jsonl",
                           "plain/train.jsonl", "plain/extra.jsonl", "parts/a.jsonl", "parts/b.jsonl", "val/dev.jsonl"})
    write(name, "{}");
  write("dict/dataset_dict.json", R"({"splits": ["train", "my.split"]})");
  for (const char* split : {"train", "my.split"})
    write(std::string("dict/") + split + "/state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
  write("saved/state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
  write("saved/dataset_info.json", "{}");
  const struct {
    const char *folder, *split;
    std::vector<std::string> files;
  } cases[] = {
      {"hub", "train_sft", {"hub/data/train_sft-00000-of-00002.parquet", "hub/data/train_sft-00001-of-00002.parquet"}},
      {"hub", "test_sft", {"hub/data/test_sft-00000-of-00001-0123456789abcdef.parquet"}},
      {"hub", "train_gen", {"hub/data/train_gen-00000-of-00001.parquet"}},
      {"plain", "test", {"plain/test.jsonl"}},
      {"plain", "validation", {"plain/validation.jsonl"}},
      {"plain", "train", {"plain/train.jsonl"}},
      {"plain", "extra", {"plain/extra.jsonl"}},
      {"parts", "train", {"parts/a.jsonl", "parts/b.jsonl"}},
      {"val", "validation", {"val/dev.jsonl"}},
      {"dict", "my.split", {"dict/my.split/data.arrow"}},
      {"saved", "whatever", {"saved/data.arrow"}},
      {"plain/extra.jsonl", "whatever", {"plain/extra.jsonl"}},
  };
  for (const auto& c : cases)
    for (const Split used_as : {Split::train, Split::evaluation}) {
      std::vector<std::string> files;
      for (const auto& path : resolve_data_files({at(c.folder)}, {used_as, c.split}))
        files.push_back(path.lexically_relative(folder_).string());
      EXPECT_EQ(files, c.files) << c.folder << " " << c.split;
    }
  for (const auto& [folder, split] : {std::pair{"hub", "train_dpo"}, {"plain", "dev_set"}, {"parts", "test"}})
    EXPECT_THAT(test::error_of(ErrorKind::input,
                               [&] {
                                 resolve_data_files({at(folder)}, {Split::train, split});
                               }),
                HasSubstr(std::string("no ") + split + " split in the folder; it has: "));
}

TEST_F(Reader, SubFoldersWithASplitEachAreNotMixed) {
  for (const char* name : {"hub/main/train.jsonl", "hub/main/test.jsonl", "hub/socratic/train.jsonl"})
    write(name, "{}");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { names({at("hub")}); }),
              HasSubstr("main/train.jsonl, socratic/train.jsonl"));
  EXPECT_THAT(names({at("hub/main")}), ElementsAre("hub/main/train.jsonl"));
  for (const char* name :
       {"train-00000-of-00002-0123456789abcdef.jsonl", "train-00001-of-00002-fedcba9876543210.jsonl"})
    write(std::string("shards/data/") + name, "{}");
  EXPECT_EQ(names({at("shards")}).size(), 2u);
  for (const char* name : {"train/code.jsonl", "train/math.jsonl", "test/code.jsonl"})
    write(std::string("by_folder/") + name, "{}");
  EXPECT_THAT(names({at("by_folder")}), ElementsAre("by_folder/train/code.jsonl", "by_folder/train/math.jsonl"));
  for (const char* name : {"train1.jsonl", "train2.jsonl"}) write(std::string("counted/") + name, "{}");
  EXPECT_EQ(names({at("counted")}).size(), 2u);
}

TEST_F(Reader, FoldersMayBeNamedAsPatternsAre) {
  write("name[1]/a.jsonl", "{}");
  write("name1/b.jsonl", "{}");
  EXPECT_THAT(names({at("name[1]/*.jsonl")}), ElementsAre("name[1]/a.jsonl"));
  EXPECT_THAT(names({at("name?/*.jsonl")}), ElementsAre("name1/b.jsonl"));
}

TEST_F(Reader, SelectAndSliceKeepPlaces) {
  const RawRows r = rows("{\"a\":0}\n{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
  const RawRows part = r.select({3, 1});
  EXPECT_EQ(part.parse(0)["a"], 3);
  EXPECT_THAT(part.place(1), HasSubstr(":2"));
  EXPECT_EQ(r.slice(1, 3).parse(1)["a"], 2);
}

}  // namespace
}  // namespace qtrain
