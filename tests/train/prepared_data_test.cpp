#include "train/prepared_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "core/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

/// Calls a function with what the program says to people.
class Listener {
 public:
  using Heard = std::function<void(std::string_view)>;
  explicit Listener(Heard heard)
      : heard_(std::move(heard)),
        stream_(::fopencookie(&heard_, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr})) {}
  ~Listener() { std::fclose(stream_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  Log::Sinks sinks() const { return {.people = stream_}; }

 private:
  static ssize_t write(void* heard, const char* text, std::size_t size) {
    (*static_cast<Heard*>(heard))({text, size});
    return static_cast<ssize_t>(size);
  }
  Heard heard_;
  std::FILE* stream_;
};

class PreparedData : public ::testing::Test {
 protected:
  PreparedData() {
    std::filesystem::create_directories(folder_ / "model");
    write_file(folder_ / "model/config.json", "{}");
    write_file(rows_, "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n");
  }
  Config config(Json more) const {
    more.update({{"model_name_or_path", (folder_ / "model").string()}, {"dataset_name", rows_}, {"output_dir", "o"}});
    return parse_config(dump_json(more), "c.json").value;
  }

  testing::TempFolder folder_;
  std::string rows_ = (folder_ / "rows.jsonl").string();
  ThreadPool pool_{2};
};

TEST_F(PreparedData, FilesThatChangeWhileTheyAreReadAreRefused) {
  const Config c = config({{"token_cache_dir", (folder_ / "cache").string()}});
  const Listener listener([&](std::string_view text) {
    if (text.find("training rows:") != std::string_view::npos) write_file(rows_, "{\"input_ids\": [9, 8]}\n");
  });
  Log log(LogLevel::info, listener.sinks());
  try {
    DataPreparation(c, pool_, log).rows(Split::train);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_THAT(e.what(), HasSubstr("changed while they were read"));
  }
  Log silent(LogLevel::silent);
  EXPECT_EQ(DataPreparation(c, pool_, silent).rows(Split::train).size(), 1) << "nothing of it is kept";
}

TEST_F(PreparedData, ADefaultCacheThatDoesNotWorkIsDoneWithout) {
  write_file(folder_ / "file", "in the way");
  ::setenv("XDG_CACHE_HOME", (folder_ / "file").c_str(), 1);
  std::string said;
  const Listener listener([&](std::string_view text) { said += text; });
  Log log(LogLevel::info, listener.sinks());
  const Config usual = config(Json::object());
  DataPreparation preparation(usual, pool_, log);
  EXPECT_EQ(preparation.rows(Split::train).size(), 2);
  EXPECT_TRUE(preparation.kept_in().empty());
  EXPECT_THAT(said, HasSubstr("no token cache"));
  ::unsetenv("XDG_CACHE_HOME");
  const Config named = config({{"token_cache_dir", (folder_ / "file/cache").string()}});
  try {
    DataPreparation(named, pool_, log).rows(Split::train);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::disk);
  }
}

}  // namespace
}  // namespace qtrain
