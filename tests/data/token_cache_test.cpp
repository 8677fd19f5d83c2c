#include "data/token_cache.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/os/file.h"
#include "core/rng.h"
#include "data/prefetch.h"
#include "data/token_file.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

/// Random rows: some empty, some of several documents, some masked.
void add_random_rows(DatasetBuilder& into, std::uint64_t seed, int rows) {
  for (int r = 0; r < rows; ++r) {
    const auto draw = philox(seed, 1, static_cast<std::uint64_t>(r));
    Ids ids, labels, starts;
    for (std::uint32_t t = 0; t < draw[0] % 9; ++t) {
      ids.push_back(static_cast<std::int32_t>((draw[1] + t * draw[2]) % 50'000));
      labels.push_back(draw[3] >> t & 1 ? ids.back() : kNoTarget);
      if (t == 0 || (draw[2] >> t & 3) == 0) starts.push_back(static_cast<std::int32_t>(t));
    }
    into.append({.input_ids = ids, .labels = labels, .document_starts = starts});
    into.statistics().lengths.push_back(static_cast<std::int32_t>(ids.size()));
  }
  into.statistics().truncated_rows = 3;
  into.statistics().first_truncated = {{.place = "rows.jsonl:7", .length = 9}};
}

Dataset random_rows(std::uint64_t seed, int rows) {
  DatasetBuilder builder;
  add_random_rows(builder, seed, rows);
  return std::move(builder).finish();
}

void expect_equal(const Dataset& a, const Dataset& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  for (std::int64_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a.dump(i), b.dump(i)) << "row " << i;
    EXPECT_EQ(a.targets(i), b.targets(i)) << "row " << i;
  }
  const DatasetStatistics &s = a.statistics(), &t = b.statistics();
  EXPECT_EQ(s.lengths, t.lengths);
  for (const auto field : {&DatasetStatistics::rows, &DatasetStatistics::tokens, &DatasetStatistics::documents,
                           &DatasetStatistics::longest, &DatasetStatistics::target_tokens,
                           &DatasetStatistics::truncated_rows, &DatasetStatistics::untargeted_rows})
    EXPECT_EQ(s.*field, t.*field);
  EXPECT_EQ(s.max_token_id, t.max_token_id);
  EXPECT_EQ(s.first_truncated.at(0).place, t.first_truncated.at(0).place);
}

class TokenCaches : public test::DataFolder {
 protected:
  /// Returns the rows of a key, and counts how often they were built.
  Dataset get(TokenCache& cache, const std::string& key, int rows = 40) {
    return cache.get({.key = digest_of(key),
                      .build =
                          [&](DatasetBuilder& into) {
                            ++built_;
                            add_random_rows(into, 5, rows);
                          }},
                     log_);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".tokens") found.push_back(entry.path());
    return found;
  }

  Log log_{LogLevel::silent};
  int built_ = 0;
};

TEST_F(TokenCaches, ARoundTripKeepsEverything) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const fs::path file = folder_ / std::to_string(seed);
    const int rows = static_cast<int>(seed * seed * 10);
    write_token_file(file, digest_of("key"), [&](DatasetBuilder& into) { add_random_rows(into, seed, rows); });
    const auto read = open_token_file(file, digest_of("key"));
    ASSERT_TRUE(read);
    expect_equal(*read, random_rows(seed, rows));
  }
}

TEST_F(TokenCaches, RowsAreMadeOnce) {
  TokenCache cache({.folder = folder_, .limit = 1 << 20});
  expect_equal(get(cache, "a"), random_rows(5, 40));
  TokenCache other({.folder = folder_, .limit = 1 << 20});
  expect_equal(get(other, "a"), random_rows(5, 40));
  EXPECT_EQ(built_, 1);
  get(other, "b");
  EXPECT_EQ(built_, 2);
}

TEST_F(TokenCaches, NoDamageGoesUnseen) {
  TokenCache cache({.folder = folder_, .limit = 1 << 20});
  const Dataset rows = get(cache, "a", 3);
  const fs::path file = files().at(0);
  const std::string whole = read_text(file);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write(file.filename(), damaged);
    test::error_of(ErrorKind::input, [&] { open_token_file(file, digest_of("a")); });
  }
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    write(file.filename(), whole.substr(0, size));
    test::error_of(ErrorKind::input, [&] { open_token_file(file, digest_of("a")); });
  }
  expect_equal(get(cache, "a", 3), rows);
  EXPECT_EQ(built_, 2) << "a damaged file is written again";
}

TEST_F(TokenCaches, AnErrorLeavesNothingBehind) {
  TokenCache cache({.folder = folder_, .limit = 1 << 20});
  const auto broken = [](DatasetBuilder& into) {
    add_random_rows(into, 1, 10);
    fail(ErrorKind::input, {.cause = "a bad row"});
  };
  test::error_of(ErrorKind::input, [&] { cache.get({.key = digest_of("a"), .build = broken}, log_); });
  EXPECT_TRUE(files().empty());
  for (const auto& entry : fs::directory_iterator(folder_)) EXPECT_NE(entry.path().extension(), ".tmp");
  get(cache, "a");
  EXPECT_EQ(built_, 1);
}

TEST_F(TokenCaches, WhatWasUsedLeastRecentlyGoes) {
  TokenCache cache({.folder = folder_, .limit = 1 << 20});
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  for (const char* key : {"a", "b", "c"}) {
    get(cache, key);
    wait();
  }
  get(cache, "a");  // used again
  wait();
  const auto size = fs::file_size(files().at(0));
  TokenCache small({.folder = folder_, .limit = 3 * size});
  const Dataset d = get(small, "d");
  EXPECT_EQ(files().size(), 3u);
  EXPECT_EQ(built_, 4);
  get(small, "a");
  get(small, "c");
  EXPECT_EQ(built_, 4);
  TokenCache none({.folder = folder_, .limit = 0});
  get(none, "e");
  EXPECT_EQ(files().size(), 1u) << "the rows of a current run stay";
  expect_equal(d, random_rows(5, 40));  // still mapped
}

TEST_F(TokenCaches, FilesOfOthersStay) {
  const std::vector<std::string> names{"notes.tokens",
                                       "notes.tmp",
                                       std::string(32, 'a') + "b.tokens",
                                       std::string(32, 'g') + ".tokens",
                                       std::string(32, 'a') + ".tokens.tmp",
                                       ".notes.12.tmp",
                                       "files/notes.json"};
  const std::string abandoned = "." + std::string(32, 'a') + ".tokens.12.tmp",
                    unused = std::string(32, 'a') + ".tokens";
  fs::create_directories(folder_ / "files");
  for (const std::string& name : names) write(name, "mine");
  for (const std::string& name : {abandoned, unused}) write(name, "ours");
  for (const auto& entry : fs::directory_iterator(folder_))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(100));
  TokenCache none({.folder = folder_, .limit = 0});
  get(none, "a");
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  for (const std::string& name : {abandoned, unused}) EXPECT_FALSE(fs::exists(folder_ / name)) << name;
}

TEST_F(TokenCaches, OfSeveralProcessesOneMakesTheRows) {
  constexpr int kProcesses = 4;
  const std::string made = at("made");
  for (int p = 0; p < kProcesses; ++p) {
    if (const pid_t child = ::fork(); child != 0) continue;
    TokenCache cache({.folder = folder_, .limit = 1 << 20});
    const Dataset rows = cache.get({.key = digest_of("a"),
                                    .build =
                                        [&](DatasetBuilder& into) {
                                          std::ofstream(made, std::ios::app) << "x";
                                          std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                          add_random_rows(into, 5, 40);
                                        }},
                                   log_);
    ::_exit(rows.size() == 40 ? 0 : 1);
  }
  for (int p = 0; p < kProcesses; ++p) {
    int status = -1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_text(made), "x");
}

TEST_F(TokenCaches, AProcessThatMakesRoomTakesNoRowsFromOthers) {
  constexpr int kProcesses = 4, kKeys = 20;
  for (int p = 0; p < kProcesses; ++p) {
    if (const pid_t child = ::fork(); child != 0) continue;
    TokenCache cache({.folder = folder_, .limit = 0});
    int found = 0;
    for (int k = 0; k < kKeys; ++k)
      found +=
          get(cache, std::to_string(p) + "," + std::to_string(k), 3).fingerprint() == random_rows(5, 3).fingerprint();
    ::_exit(found == kKeys ? 0 : 1);
  }
  for (int p = 0; p < kProcesses; ++p) {
    int status = -1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(TokenCaches, AFileThatChangedIsReadAgain) {
  TokenCache cache({.folder = folder_ / "cache", .limit = 1 << 20});
  ThreadPool pool(2);
  const fs::path file = write("rows.jsonl", "one");
  const auto age = [&](int hours) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  age(3);
  const Digest one = cache.digest_of_file(file, pool);
  EXPECT_EQ(cache.digest_of_file(file, pool), one);
  EXPECT_EQ(one, digest_contents(file, pool));
  write("rows.jsonl", "two");
  age(3);
  EXPECT_NE(cache.digest_of_file(file, pool), one);
  test::error_of(ErrorKind::input, [&] { cache.digest_of_file(at("missing"), pool); });
}

/// Changes a file in place, keeping its inode and size.
void overwrite(const fs::path& file, std::string_view contents) {
  std::ofstream(file, std::ios::binary | std::ios::in | std::ios::out) << contents;
}

// The clocks of many file systems advance only every few milliseconds, or even seconds, so an edit may leave the times
// unchanged. Even if the times always change, the empty cache folder shows that nothing is remembered about such a
// recent file.
TEST_F(TokenCaches, AFileThatIsEditedToTheSameSizeAtOnceIsReadAgain) {
  TokenCache cache({.folder = folder_ / "cache", .limit = 1 << 20});
  ThreadPool pool(2);
  const fs::path file = write("rows.jsonl", "000");
  for (int edit = 100; edit < 200; ++edit) {
    const std::string contents = std::to_string(edit);
    overwrite(file, contents);
    write("same", contents);
    ASSERT_EQ(cache.digest_of_file(file, pool), digest_contents(at("same"), pool)) << contents;
  }
  EXPECT_TRUE(fs::is_empty(folder_ / "cache/files"));
}

TEST_F(TokenCaches, ADigestIsKeptOnceAFileIsOldEnoughAndDroppedWithTheNextEdit) {
  TokenCache cache({.folder = folder_ / "cache", .limit = 1 << 20});
  ThreadPool pool(2);
  const fs::path file = write("rows.jsonl", "one");
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const Digest one = cache.digest_of_file(file, pool);
  const auto memos = fs::directory_iterator(folder_ / "cache/files");
  ASSERT_NE(memos, fs::directory_iterator());
  const fs::path memo = memos->path();
  Json kept = read_json(memo);
  EXPECT_EQ(kept["low"], one.low);
  kept["low"] = 7;  // shows that this value is read
  write_file(memo, dump_json(kept));
  EXPECT_EQ(cache.digest_of_file(file, pool).low, 7u);
  const auto modified = fs::last_write_time(file);
  overwrite(file, "two");
  fs::last_write_time(file, modified);
  EXPECT_EQ(cache.digest_of_file(file, pool), digest_contents(file, pool));
}

TEST(Prefetch, GivesTheBatchesOfTheLoaderInTheirOrder) {
  const Dataset rows = random_rows(3, 100);
  const Loader loader(rows, {.batch_size = 3, .sampler = {.sampling = Sampling::random, .seed = 9}});
  std::vector<BatchPlace> places;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) places.push_back({epoch, i});
  for (const int threads : {1, 4}) {
    Prefetcher prefetcher(loader, {.threads = threads, .ahead = 5}, [&places, next = std::size_t{0}]() mutable {
      return next < places.size() ? std::optional(places[next++]) : std::nullopt;
    });
    for (const BatchPlace& place : places) {
      const Batch batch = prefetcher.take(place), expected = loader.batch(place.epoch, place.index);
      EXPECT_EQ(batch.tokens, expected.tokens);
      EXPECT_EQ(batch.targets, expected.targets);
      EXPECT_EQ(batch.cu_seqlens, expected.cu_seqlens);
    }
    test::error_of(ErrorKind::internal, [&] { prefetcher.take({3, 0}); });
  }
}

TEST(Prefetch, KeepsAsManyBatchesAheadAsItIsTold) {
  const Dataset rows = random_rows(3, 100);
  const Loader loader(rows, {.batch_size = 1});
  std::atomic<int> asked = 0;
  Prefetcher prefetcher(loader, {.threads = 2, .ahead = 3}, [&]() { return std::optional(BatchPlace{0, asked++}); });
  const auto settled = [&] {
    for (int before = -1; before != asked;) {
      before = asked;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return asked.load();
  };
  EXPECT_EQ(settled(), 3);
  prefetcher.take({0, 0});
  EXPECT_EQ(settled(), 4);
}

TEST(Prefetch, ErrorsComeOutWhereTheBatchIsTaken) {
  const Dataset rows = random_rows(3, 4);
  const Loader loader(rows, {.batch_size = 2});
  Prefetcher prefetcher(loader, {}, [next = 0]() mutable { return std::optional(BatchPlace{0, 7 + next++}); });
  test::error_of(ErrorKind::internal, [&] { prefetcher.take({0, 7}); });
}

}  // namespace
}  // namespace qtrain
