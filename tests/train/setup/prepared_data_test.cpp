#include "train/setup/prepared_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "config/fields.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

/// Calls a function with the messages for the user.
class LogReader {
 public:
  using Heard = std::function<void(std::string_view)>;
  explicit LogReader(Heard heard)
      : heard_(std::move(heard)),
        stream_(::fopencookie(&heard_, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr})) {}
  ~LogReader() { std::fclose(stream_); }
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;
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
  const LogReader listener([&](std::string_view text) {
    if (text.find("training rows:") != std::string_view::npos) write_file(rows_, "{\"input_ids\": [9, 8]}\n");
  });
  Log log(LogLevel::info, listener.sinks());
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { DataPreparation(c, pool_, log).rows(Split::train); }),
              HasSubstr("changed while they were being read"));
  Log silent(LogLevel::silent);
  EXPECT_EQ(DataPreparation(c, pool_, silent).rows(Split::train).size(), 1) << "no part of the changed rows is kept";
}

TEST_F(PreparedData, ADefaultCacheThatDoesNotWorkIsDoneWithout) {
  write_file(folder_ / "file", "in the way");
  ::setenv("XDG_CACHE_HOME", (folder_ / "file").c_str(), 1);
  std::string said;
  const LogReader listener([&](std::string_view text) { said += text; });
  Log log(LogLevel::info, listener.sinks());
  const Config usual = config(Json::object());
  DataPreparation preparation(usual, pool_, log);
  EXPECT_EQ(preparation.rows(Split::train).size(), 2);
  EXPECT_TRUE(preparation.kept_in().empty());
  EXPECT_THAT(said, HasSubstr("no token cache"));
  ::unsetenv("XDG_CACHE_HOME");
  const Config named = config({{"token_cache_dir", (folder_ / "file/cache").string()}});
  EXPECT_EQ(test::error_of([&] { DataPreparation(named, pool_, log).rows(Split::train); }).kind(), ErrorKind::disk);
}

/// Rows of text with a tokenizer folder, prepared repeatedly with one cache.
class TokenCacheKey : public ::testing::Test {
 protected:
  static constexpr const char* kClock = "{{ strftime_now('%d') }}";

  TokenCacheKey() {
    for (const char* name : {"model", "other"}) fs::create_directories(folder_ / name);
    for (const char* name : {"model", "other"}) write_file(folder_ / name / "config.json", "{}");
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      for (const char* to : {"model", "other"})
        write_file(folder_ / to / name, read_text(fs::path(QTRAIN_SOURCE_DIR) / "tests/data/golden/chatml" / name));
    write_file(folder_ / "other/special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
    for (const char* name : {"rows.jsonl", "other.jsonl"})
      for (const char* letter : {"a", "b", "c"})
        write_file(folder_ / name, (fs::exists(folder_ / name) ? read_text(folder_ / name) : "") +
                                       dump_json({{"prompt", letter}, {"completion", std::string(name) + letter}}) +
                                       "\n");
  }
  /// The number of data sets in the cache after the rows of the config have been prepared.
  int kept(const Json& more, Split split = Split::train, std::int64_t max_rows = 0) {
    Json all = {{"model_name_or_path", (folder_ / "model").string()},
                {"dataset_name", (folder_ / "rows.jsonl").string()},
                {"output_dir", "o"},
                {"token_cache_dir", (folder_ / "cache").string()}};
    all.update(more);
    for (const auto& [key, value] : more.items())
      if (value.is_null()) all.erase(key);
    Log silent(LogLevel::silent);
    const Config c = parse_config(dump_json(all), "c.json").value;
    DataPreparation(c, pool_, silent).rows(split, max_rows);
    int files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache")) files += entry.path().extension() == ".tokens";
    return files;
  }
  /// Checks that the rows of a config are new to the cache, and found in it the second time.
  void expect_new(const Json& more, Split split = Split::train) {
    const int before = files_;
    files_ = kept(more, split);
    EXPECT_EQ(files_, before + 1) << more;
    EXPECT_EQ(kept(more, split), files_) << more;
  }

  testing::TempFolder folder_;
  ThreadPool pool_{2};
  int files_ = 0;
};

/// For every key that affects rows, a value other than the default and the keys that it requires.
const Json kOtherValues = parse_json(R"({
  "dataset_config": {"dataset_config": "default"},
  "max_samples": {"max_samples": 2},
  "dataset_train_split": {"dataset_train_split": "train[1:]"},
  "dataset_test_split": {"dataset_test_split": "train[1:]"},
  "allow_empty_answers": {"allow_empty_answers": true},
  "dataset_mixture": {"dataset_name": null, "dataset_mixture": [{"path": "ROWS", "fraction": 0.5}]},
  "mix_strategy": {"dataset_name": null, "dataset_mixture": [{"path": "ROWS", "fraction": 0.5}],
                   "mix_strategy": "all_exhausted"},
  "column_mapping": {"column_mapping": {"prompt": "prompt"}},
  "message_property_mappings": {"message_property_mappings": {"role": "speaker"}},
  "role_mapping": {"role_mapping": {"user": "customer"}},
  "dataset_text_field": {"dataset_text_field": "words"},
  "max_length": {"max_length": 9},
  "truncation_mode": {"truncation_mode": "keep_end"},
  "split_long_texts": {"split_long_texts": true},
  "learn_plain_texts": {"learn_plain_texts": true},
  "skip_broken_turns": {"skip_broken_turns": true},
  "first_prompt_only": {"first_prompt_only": true},
  "shuffle_dataset": {"shuffle_dataset": true},
  "packing": {"packing": true},
  "packing_strategy": {"packing": true, "packing_strategy": "wrapped"},
  "packing_scope": {"packing": true, "packing_scope": "dataset"},
  "packing_isolate": {"packing": true, "packing_strategy": "wrapped", "packing_isolate": true},
  "eval_packing": {"eval_packing": true},
  "completion_only_loss": {"completion_only_loss": false},
  "assistant_only_loss": {"assistant_only_loss": true, "dataset_name": "CHATS", "chat_template_path": "chatml"},
  "last_turn_only_loss": {"last_turn_only_loss": true, "dataset_name": "CHATS", "chat_template_path": "chatml"},
  "skip_empty_answers": {"skip_empty_answers": true},
  "response_template": {"response_template": "rows"},
  "instruction_template": {"response_template": "rows", "instruction_template": "jsonl"}
})",
                                     "other values");

TEST_F(TokenCacheKey, HoldsEveryKeyThatSaysHowRowsAreMade) {
  write_file(folder_ / "chats.jsonl",
             R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})");
  expect_new(Json::object());
  const Json keys = rows_json({});
  for (const auto& [key, ignored] : keys.items())
    ASSERT_TRUE(kOtherValues.contains(key)) << "the test has no other value of " << key;
  for (const auto& [key, values] : kOtherValues.items()) {
    EXPECT_TRUE(keys.contains(key)) << key;
    Json more = values;
    if (more.value("dataset_name", Json()) == "CHATS") more["dataset_name"] = (folder_ / "chats.jsonl").string();
    if (more.contains("dataset_mixture")) more["dataset_mixture"][0]["path"] = (folder_ / "rows.jsonl").string();
    expect_new(more);
  }
}

TEST_F(TokenCacheKey, HoldsWhatIsNotAmongTheKeysOfRows) {
  expect_new(Json::object());
  expect_new({{"seed", 7}});
  expect_new({{"data_seed", 8}});
  expect_new({{"eval_split", 1}});
  expect_new({{"eval_split", 1}}, Split::evaluation);
  expect_new({{"eval_dataset_name", (folder_ / "rows.jsonl").string()}}, Split::evaluation);
  expect_new({{"eos_token", "<|endoftext|>"}});
  expect_new({{"pad_token", "<|endoftext|>"}});  // a template may read it
  expect_new({{"chat_template_path", "chatml"}});
  expect_new({{"chat_template_path", "{{ messages }}"}});
  expect_new({{"tokenizer_name_or_path", (folder_ / "other").string()}});
  write_file(folder_ / "model/chat_template.jinja", kClock);
  expect_new({{"template_date", "2024-07-25"}});
  expect_new({{"template_date", "2024-07-26"}});
}

TEST_F(TokenCacheKey, HoldsHowManyRowsAreWanted) {
  expect_new(Json::object());
  EXPECT_EQ(kept(Json::object(), Split::train, 2), files_ + 1);
}

TEST_F(TokenCacheKey, HoldsTheContentsOfFiles) {
  expect_new(Json::object());
  EXPECT_EQ(kept({{"dataset_name", (folder_ / "other.jsonl").string()}}), files_ + 1) << "another file";
  ++files_;
  for (const char* name : {"rows.jsonl", "model/tokenizer.json", "model/tokenizer_config.json"}) {
    std::string contents = read_text(folder_ / name);
    if (name[0] == 'r')
      contents[contents.find("rows.jsonla")] = 'R';  // the size is the same, and the time almost
    else
      contents.insert(contents.find('{') + 1, " ");
    write_file(folder_ / name, contents);
    expect_new(Json::object());
  }
  const std::string own = (folder_ / "own.jinja").string();
  write_file(own, "one");
  expect_new({{"chat_template_path", own}});
  write_file(own, "two");
  expect_new({{"chat_template_path", own}});
}

TEST_F(TokenCacheKey, HoldsNothingElse) {
  expect_new(Json::object());
  EXPECT_EQ(kept({{"learning_rate", 0.5}, {"output_dir", "elsewhere"}, {"per_device_train_batch_size", 3}}), files_);
}

}  // namespace
}  // namespace qtrain
