#include "core/formats/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "core/formats/json.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;

const std::filesystem::path kGoldens = QTRAIN_SOURCE_DIR "/tests/core/goldens";

std::string with_length(std::string_view header, std::string_view data) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file.append(header).append(data);
}

/// Element i of every tensor of mixed.safetensors is i - 3 (see make_goldens.py).
double element(const ConstTensor& t, std::int64_t i) {
  switch (t.dtype) {
    case DType::f64: return t.as<double>()[i];
    case DType::f32: return t.as<float>()[i];
    case DType::f16: return t.as<F16>()[i];
    case DType::bf16: return t.as<Bf16>()[i];
    case DType::i64: return static_cast<double>(t.as<std::int64_t>()[i]);
    case DType::i32: return t.as<std::int32_t>()[i];
    case DType::i16: return reinterpret_cast<const std::int16_t*>(t.data)[i];
    case DType::i8: return reinterpret_cast<const std::int8_t*>(t.data)[i];
    default: return static_cast<std::int8_t>(t.data[i]);
  }
}

TEST(Safetensors, ReadsWhatTheLibraryWrote) {
  const SafetensorsReader reader(kGoldens / "mixed.safetensors");
  EXPECT_EQ(reader.tensors().size(), 30u);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  for (const auto* dtype : {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"}) {
    const auto matrix = reader.at(std::string(dtype) + ".matrix");
    EXPECT_EQ(matrix.shape, Shape(2, 3));
    for (int i = 0; i < 6; ++i) EXPECT_EQ(element(matrix, i), i - 3) << dtype;
    const auto scalar = reader.at(std::string(dtype) + ".scalar");
    EXPECT_EQ(scalar.shape.rank, 0);
    EXPECT_EQ(element(scalar, 0), -3) << dtype;
    EXPECT_EQ(reader.at(std::string(dtype) + ".empty").shape, Shape(0, 5));
  }
  EXPECT_EQ(reader.at("bool.matrix").dtype, DType::boolean);
  EXPECT_EQ(reader.at("f32.rank4").shape, Shape(1, 2, 3, 4));
}

TEST(Safetensors, WritesTheLibrarysBytes) {
  TempFolder folder;
  const SafetensorsReader reader(kGoldens / "mixed.safetensors");
  write_safetensors(folder / "copy.safetensors", NamedTensors(reader.tensors().begin(), reader.tensors().end()));
  EXPECT_TRUE(read_text(folder / "copy.safetensors") == read_text(kGoldens / "mixed.safetensors"));
}

TEST(Safetensors, SplitsShardsAsTheHubDoes) {
  const SafetensorsReader reader(kGoldens / "sharded");
  NamedTensors tensors;  // in the script's order, which decides where shards begin
  for (int i = 0; i < 3; ++i)
    for (const auto* name : {"w", "b"}) {
      const auto key = "layers." + std::to_string(i) + "." + name;
      tensors.emplace_back(key, reader.at(key));
      EXPECT_EQ(reader.at(key).as<float>()[7], i);
    }
  tensors.emplace_back("big", reader.at("big"));
  TempFolder folder;
  write_sharded(folder.path(), tensors, 300);
  for (const auto* name : {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                           "model-00003-of-00003.safetensors", "model.safetensors.index.json"})
    EXPECT_TRUE(read_text(folder / name) == read_text(kGoldens / "sharded" / name)) << name;
}

TEST(Safetensors, HeadersArePaddedToAMultipleOf8) {
  const SafetensorsReader reader(kGoldens / "sharded");
  TempFolder folder;
  for (std::size_t letters = 1; letters <= 8; ++letters) {  // every remainder
    write_safetensors(folder / "x.safetensors", {{std::string(letters, 'n'), reader.at("big")}});
    const std::string bytes = read_text(folder / "x.safetensors");
    const std::size_t length = bytes.size() - 8 - reader.at("big").bytes(), text = bytes.rfind('}', 8 + length) + 1;
    EXPECT_EQ(length % 8, 0u);
    EXPECT_LT(8 + length - text, 8u) << "spaces";
  }
}

TEST(Safetensors, AShardIsFilledToItsLimit) {
  const SafetensorsReader reader(kGoldens / "sharded");
  const ConstTensor w = reader.at("layers.0.w");
  const NamedTensors tensors{{"a", w}, {"b", w}, {"c", w}};
  TempFolder folder;
  write_sharded(folder.path(), tensors, 2 * w.bytes());
  EXPECT_TRUE(std::filesystem::exists(folder / "model-00002-of-00002.safetensors"));
  EXPECT_EQ(SafetensorsReader(folder / "model-00001-of-00002.safetensors").tensors().size(), 2u);
}

TEST(Safetensors, WeightFilesOfAnEarlierModelGo) {
  const SafetensorsReader reader(kGoldens / "sharded");
  const NamedTensors tensors(reader.tensors().begin(), reader.tensors().end());
  TempFolder folder;
  write_file(folder / "model-card.safetensors", "not ours");
  write_sharded(folder.path(), tensors, 300);
  write_sharded(folder.path(), tensors);
  EXPECT_EQ(SafetensorsReader(folder.path()).path(), folder / "model.safetensors");
  EXPECT_FALSE(std::filesystem::exists(folder / "model-00001-of-00003.safetensors"));
  write_sharded(folder.path(), tensors, 300);
  EXPECT_EQ(SafetensorsReader(folder.path()).path(), folder / "model.safetensors.index.json");
  EXPECT_TRUE(std::filesystem::exists(folder / "model-card.safetensors"));
}

TEST(Safetensors, TensorsMayBeProducedInChunks) {
  TempFolder folder;
  const std::vector<float> values{1, 2, 3, 4};
  const TensorSource source{"x", DType::f32, {2, 2}, [&](const auto& append) {
                              append(std::as_bytes(std::span(values).first(1)));
                              append(std::as_bytes(std::span(values).subspan(1)));
                            }};
  write_safetensors(folder / "x.safetensors", std::vector{source});
  EXPECT_THAT(SafetensorsReader(folder / "x.safetensors").at("x").span<float>(), ::testing::ElementsAre(1, 2, 3, 4));
}

TEST(Safetensors, ASourceOfTheWrongSizeIsABug) {
  TempFolder folder;
  const TensorSource source{"x", DType::f32, {2}, [](const auto&) {}};
  EXPECT_EQ(error_of([&] { write_safetensors(folder / "x", std::vector{source}); }).kind(), ErrorKind::internal);
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

// Files that other writers make and that must load.

TEST(GoodSafetensors, WhitespaceAroundTheHeaderAndOddAlignment) {
  TempFolder folder;
  const std::vector<float> values{1.5f, -2};
  const std::string data(reinterpret_cast<const char*>(values.data()), 8);
  for (int pad = 0; pad < 8; ++pad) {
    const std::string header = " \n\t" + std::string(static_cast<std::size_t>(pad), ' ') +
                               R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )";
    write_file(folder / "x.safetensors", with_length(header, data));
    EXPECT_THAT(SafetensorsReader(folder / "x.safetensors").at("x").span<float>(), ::testing::ElementsAre(1.5f, -2));
  }
}

TEST(GoodSafetensors, NoTensorsAtAll) {
  TempFolder folder;
  write_file(folder / "x.safetensors", with_length("{}", ""));
  EXPECT_TRUE(SafetensorsReader(folder / "x.safetensors").tensors().empty());
}

TEST(GoodSafetensors, WhatWeCannotUseIsRefusedOnlyOnUse) {
  TempFolder folder;
  write_file(folder / "x.safetensors", with_length(R"({"a":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[0,2]},)"
                                                   R"("b":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[2,4]},)"
                                                   R"("c":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                                                   "012345"));
  const SafetensorsReader reader(folder / "x.safetensors");
  EXPECT_EQ(reader.tensors().size(), 1u);
  EXPECT_TRUE(reader.contains("a"));
  EXPECT_THAT(error_of([&] { reader.at("a"); }).what(), HasSubstr("F8_E5M2"));
  EXPECT_THAT(error_of([&] { reader.at("b"); }).what(), HasSubstr("5 dimensions"));
  EXPECT_THAT(error_of([&] { reader.at("d"); }).what(), HasSubstr("has no tensor \"d\""));
}

TEST(GoodSafetensors, SnapshotsOfACacheAreLinks) {
  TempFolder cache;
  const auto snapshot = cache / "models--org--name/snapshots/0123";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(cache / "models--org--name/blobs");
  int i = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldens / "sharded")) {
    const auto blob = "blob" + std::to_string(i++);
    std::filesystem::copy_file(entry.path(), cache / "models--org--name/blobs" / blob);
    std::filesystem::create_symlink("../../blobs/" + blob, snapshot / entry.path().filename());
  }
  EXPECT_EQ(SafetensorsReader(snapshot).tensors().size(), 7u);
  std::filesystem::create_directory_symlink(snapshot, cache / "model");
  EXPECT_EQ(SafetensorsReader(cache / "model").tensors().size(), 7u);
}

struct BadFile {
  const char* cause;
  std::string bytes;
};

class BadSafetensors : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefused) {
  TempFolder folder;
  write_file(folder / "bad.safetensors", GetParam().bytes);
  const auto error = error_of([&] { SafetensorsReader(folder / "bad.safetensors"); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), HasSubstr(GetParam().cause));
  EXPECT_THAT(error.what(), HasSubstr("bad.safetensors"));
}

BadFile bad(const char* cause, std::string_view header, std::string_view data = "01234567") {
  return {cause, with_length(header, data)};
}

std::string with_claimed_length(std::uint64_t length) {
  std::string file = with_length("{}", "");
  std::memcpy(file.data(), &length, 8);
  return file;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSafetensors,
    ::testing::Values(
        BadFile{"too few", ""}, BadFile{"too few", "1234567"}, BadFile{"above", with_claimed_length(100'000'001)},
        BadFile{"above", with_claimed_length(~0ull)}, BadFile{"more than the file holds", with_claimed_length(3)},
        bad("header", "[]"), bad("empty", "", ""), bad("header", "{", ""), bad("UTF-8", "{\"\xff\":1}"),
        bad("given twice", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
        bad("gap or overlap", R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})"),
        bad("gap or overlap", R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
        bad("gap or overlap", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
        bad("8 follow the header", R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})"),
        bad("9 bytes, but 8", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})"),
        bad("does not fit", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
        bad("does not fit", R"({"a":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,8]}})"),
        bad("does not fit", R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}})"),
        bad("not a size", R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})"),
        bad("not a size", R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})"),
        bad("not a size", R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]}})"),
        bad("not a range", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})"),
        bad("not a range", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":["0",8]}})"),
        bad("no data_offsets", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,4,8]}})"),
        bad("no data_offsets", R"({"a":{"dtype":"U8","shape":[8]}})"),
        bad("no dtype", R"({"a":{"shape":[8],"data_offsets":[0,8]}})"),
        bad("unknown dtype", R"({"a":{"dtype":"float","shape":[8],"data_offsets":[0,8]}})"),
        bad("no shape", R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})"), bad("not an object", R"({"a":1})"),
        bad("__metadata__", R"({"__metadata__":[]})", ""), bad("not a string", R"({"__metadata__":{"a":1}})", "")));

/// A folder with an index over the shards of the goldens.
void write_index(const TempFolder& folder, const std::string& tensor, const std::string& shard) {
  std::filesystem::copy(kGoldens / "sharded", folder.path());
  auto index = read_json(folder / "model.safetensors.index.json");
  index["weight_map"][tensor] = shard;
  write_file(folder / "model.safetensors.index.json", dump_json(index));
}

TEST(BadIndex, ShardNamesStayInTheFolder) {
  for (const auto* name : {"../model.safetensors", "/etc/passwd", "..", ".", "", "a/b.safetensors", "a\\b"}) {
    TempFolder folder;
    write_index(folder, "big", name);
    EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("not a plain file name")) << name;
  }
}

TEST(BadIndex, ALinkOutOfTheFolderIsRefused) {
  TempFolder folder;
  write_index(folder, "extra", "link.safetensors");
  std::filesystem::create_symlink(kGoldens / "mixed.safetensors", folder / "link.safetensors");
  EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("link out of the model folder"));
}

TEST(BadIndex, MissingAndSwappedShardsAreFound) {
  {
    TempFolder folder;
    write_index(folder, "big", "model-00004-of-00004.safetensors");
    EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("missing"));
  }
  {
    TempFolder folder;
    write_index(folder, "big", "model-00001-of-00003.safetensors");
    EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("big"));
  }
  {
    TempFolder folder;
    write_index(folder, "none", "model-00001-of-00003.safetensors");
    EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("\"none\" is not in"));
  }
  {
    TempFolder folder;
    write_index(folder, "layers.0.b", "copy.safetensors");
    std::filesystem::copy(folder / "model-00001-of-00003.safetensors", folder / "copy.safetensors");
    EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("is in two shards"));
  }
}

TEST(BadFolder, PicklesAreRefusedWithTheReason) {
  TempFolder folder;
  EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("has no model.safetensors"));
  write_file(folder / "pytorch_model.bin", "x");
  EXPECT_THAT(error_of([&] { SafetensorsReader{folder.path()}; }).what(), HasSubstr("pickles"));
}

TEST(BadSafetensorsBits, NoFlippedHeaderBitOrTruncationCrashes) {
  const auto good = read_text(kGoldens / "mixed.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  TempFolder folder;
  const auto read = [&](std::string_view file) {
    std::filesystem::remove(folder / "x");  // file systems flush files that are truncated and rewritten
    std::ofstream(folder / "x", std::ios::binary) << file;
    SafetensorsReader{folder / "x"};
  };
  for (std::size_t byte = 0; byte < 8 + header; byte += 3) {
    auto file = good;
    file[byte] = static_cast<char>(file[byte] ^ (1 << byte % 8));
    try {
      read(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
    }
  }
  for (std::size_t size = 0; size < good.size(); size += 37)
    EXPECT_EQ(error_of([&] { read(good.substr(0, size)); }).kind(), ErrorKind::input);
}

}  // namespace
}  // namespace qtrain
