// Blocks of one text, compressed by pyarrow, whole and damaged.
#include "data/source/codecs.h"

#include <gmock/gmock.h>

#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kText = "the same words, the same words, the same words again and 0123456789";

struct Block {
  Codec codec;
  std::string_view hex;

  std::string bytes() const {
    std::string out;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
    return out;
  }
};
constexpr Block kBlocks[] = {
    {Codec::snappy, "433c7468652073616d6520776f7264732c207610005020616761696e20616e642030313233343536373839"},
    {Codec::lz4_block, "ff017468652073616d6520776f7264732c2010000bf00620616761696e20616e642030313233343536373839"},
    {Codec::lz4_frame,
     "04224d186040822c000000ff017468652073616d6520776f7264732c2010000bf00620616761696e20616e642030313233343536373839000"
     "0"
     "0000"},
    {Codec::gzip,
     "1f8b08000000000002032bc94855284ecc4d5528cf2f4a29d65128c1cb57484c4fcccc5348cc4b513030343236313533b7b004003500123c4"
     "3"
     "000000"},
    {Codec::zstd,
     "28b52ffd204365010054027468652073616d6520776f7264732c2020616761696e20616e6420303132333435363738390100469c4b"},
};

std::string refusal(const Block& block, std::string_view bytes, std::uint64_t size = kText.size()) {
  return test::error_of(ErrorKind::input, [&] { decompress({block.codec, bytes, size}); });
}

TEST(Codecs, BlocksOfEachKindAreDecoded) {
  for (const Block& block : kBlocks) EXPECT_EQ(decompress({block.codec, block.bytes(), kText.size()}).view(), kText);
}

TEST(Codecs, ASizeThatIsNotTheClaimedOneIsRefused) {
  for (const Block& block : kBlocks)
    for (const std::uint64_t size : {kText.size() - 1, kText.size() + 1, std::size_t{0}})
      EXPECT_THAT(refusal(block, block.bytes(), size), HasSubstr("damaged compressed data"));
  EXPECT_THAT(refusal({Codec::none, ""}, "abc", 4), HasSubstr("its length differs from the stated one"));
  for (const Block& block : kBlocks)
    EXPECT_THAT(refusal(block, block.bytes(), std::uint64_t{1} << 40), HasSubstr("its stated size is impossible"));
}

TEST(Codecs, BlocksThatEndTooEarlyAreRefused) {
  for (const Block& block : kBlocks) {
    const std::string whole = block.bytes();
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_THAT(refusal(block, whole.substr(0, size)), HasSubstr("damaged compressed data")) << size;
  }
}

TEST(Codecs, CopiesFromBeforeTheStartAreRefused) {
  EXPECT_THAT(refusal({Codec::snappy, ""}, std::string("\x08\x00x\x0d\x05", 5), 8), HasSubstr("damaged"));
  EXPECT_THAT(refusal({Codec::lz4_block, ""}, std::string("\x10x\x05\x00\x50hello", 10), 10), HasSubstr("damaged"));
}

}  // namespace
}  // namespace qtrain
