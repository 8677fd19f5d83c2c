// Paths that lead nowhere or to something unintended, everywhere that a path can be given: the command ends soon, uses
// little memory, and blames the path instead of itself.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <set>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using Words = std::vector<std::string>;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Use : std::uint8_t { read, written };

/// An argument that takes a path.
struct Place {
  std::string name;
  std::function<Words(const std::string& path)> words;
  Use use = Use::read;
};

/// A path, and why it is bad.
struct BadPath {
  std::string name, path;
  bool cannot_be = false;      ///< nothing can ever exist there, so every use is refused
  bool may_be_waited = false;  ///< a FIFO: the command may wait for another process
};

constexpr std::int64_t kMemoryKib = 1 << 20;

/// A folder with a valid model, rows, an adapter and a run, and with the targets of bad paths.
class Ground {
 public:
  Ground() {
    fs::permissions(folder_.path(), fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec |
                                        fs::perms::group_read | fs::perms::others_read);
    fs::create_directories(folder_ / "model");
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(kGoldens / "llama_gqa3_tied" / file, folder_ / "model" / file);
    write_letter_tokenizer(folder_ / "model", read_json(folder_ / "model/config.json").at("vocab_size"));
    Json config = tiny_run("out");
    config.update({{"model_name_or_path", "model"}, {"max_steps", 1}, {"save_strategy", "no"}, {"threads", 1}});
    config["eval_dataset_name"] = config["dataset_name"];
    write_file(folder_ / "run.json", dump_json(config, 2));
    fs::create_symlink("loop", folder_ / "loop");
    fs::create_directory(folder_ / "private");
    fs::permissions(folder_ / "private", fs::perms::owner_all);
    reset();
    qtrain_ok({.words = {"run.json"}, .folder = folder_.path()});
    for (const auto& entry : fs::directory_iterator(folder_.path())) own_.insert(entry.path().filename());
  }

  /// Removes what a command has left behind.
  void reset() {
    for (const char* name : {"folder", "other", "a\nb"}) fs::remove_all(folder_ / name);
    std::vector<fs::path> left;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (!own_.empty() && !own_.contains(entry.path().filename())) left.push_back(entry.path());
    for (const fs::path& path : left) fs::remove_all(path);
    fs::create_directory(folder_ / "other");
    fs::permissions(folder_ / "other", fs::perms::all);
    fs::create_directory(folder_ / "folder");
    fs::remove(folder_ / "fifo");
    EXPECT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
    write_file(folder_ / "file", "x");
  }
  const fs::path& folder() const { return folder_.path(); }

 private:
  TempFolder folder_;
  std::set<fs::path> own_;  ///< names of what was there before the first command
};

std::vector<BadPath> bad_paths() {
  return {{"loop", "loop", true},
          {"below_a_loop", "loop/x", true},
          {"long_name", std::string(300, 'n'), true},
          {"long_path",
           [] {
             std::string path;
             for (int i = 0; i < 3000; ++i) path += "a/";
             return path;
           }(),
           true},
          {"below_a_file", "file/x"},
          {"folder", "folder"},
          {"file", "file"},
          {"fifo", "fifo", false, true},
          {"memory", "/proc/self/mem"},
          {"zeros", "/dev/zero"},
          {"empty", ""},
          {"two_lines", "a\nb"}};
}

Place of_key(const std::string& command, const std::string& key, const Words& more = {}) {
  return {command + "_" + key, [=](const std::string& path) {
            Words words{command, "run.json", "output_dir=other", key + "=" + path};
            words.insert(words.end(), more.begin(), more.end());
            return words;
          }};
}

Place of_flag(const Words& words, const std::string& flag, Use use = Use::read) {
  return {words[0] + "_" + flag,
          [=](const std::string& path) {
            Words all = words;
            all.insert(all.end(), {"--" + flag, path});
            return all;
          },
          use};
}

Place of_operand(const Words& before, const Words& behind = {}) {
  return {before[0] + "_operand", [=](const std::string& path) {
            Words all = before;
            all.push_back(path);
            all.insert(all.end(), behind.begin(), behind.end());
            return all;
          }};
}

std::vector<Place> keys() {
  std::vector<Place> all;
  for (const char* command : {"train", "validate", "estimate", "preprocess"})
    for (const char* key : {"model_name_or_path", "tokenizer_name_or_path", "dataset_name"})
      all.push_back(of_key(command, key));
  for (const char* command : {"train", "validate"}) {
    for (const char* key :
         {"adapter_name_or_path", "chat_template_path", "deepspeed", "accelerate_config", "sample_prompts"})
      all.push_back(of_key(command, key));
    all.push_back(of_key(command, "eval_dataset_name", {"eval_strategy=steps"}));
  }
  all.push_back(of_key("train", "resume_from_checkpoint"));
  for (const char* key : {"output_dir", "token_cache_dir"}) {
    all.push_back(of_key("train", key));
    all.back().use = Use::written;
  }
  return all;
}

std::vector<Place> flags() {
  const std::string adapter = (kGoldens / "lora_qwen3_rs/adapter").string();
  const Words generate{"generate", "--model", "model", "--raw", "--prompt", "x", "--max_new_tokens", "1"};
  std::vector<Place> all{
      of_flag({"train", "run.json", "output_dir=other"}, "resume"),
      of_flag({"train", "run.json", "output_dir=other"}, "events", Use::written),
      of_flag({"eval", "run.json"}, "adapter"),
      of_flag({"eval", "run.json", "--generate"}, "rows", Use::written),
      of_flag({"estimate", "run.json", "nproc=2"}, "trace"),
      of_flag({"tune", "run.json", "--steps", "1", "--trials", "1"}, "output", Use::written),
      of_flag({"preprocess", "run.json"}, "dump", Use::written),
      of_flag({"generate", "--prompt", "x"}, "model"),
      of_flag(generate, "adapter"),
      of_flag({"generate", "--model", "model"}, "input"),
      of_flag(generate, "output", Use::written),
      of_flag({"chat"}, "model"),
      of_flag({"chat", "--model", "model"}, "adapter"),
      of_flag({"serve", "--port", "0"}, "model"),
      of_flag({"serve", "--port", "0", "--model", "model"}, "adapter"),
      of_flag({"tokenize"}, "model"),
      of_flag({"tokenize", "--model", "model"}, "input"),
      of_flag({"render", "--input", "run.json"}, "model"),
      of_flag({"render", "--model", "model"}, "input"),
      of_flag({"import", (source_folder() / "tests/convert/goldens/gguf/smollm.gguf").string()}, "output",
              Use::written),
      of_flag({"merge", "--adapter", adapter, "--output", "merged"}, "model"),
      of_flag({"merge", "--model", "model", "--output", "merged"}, "adapter"),
      of_flag({"export", "--output", "model.gguf"}, "model"),
      of_flag({"export", "--model", "model", "--output", "model.gguf"}, "adapter"),
      of_flag({"export", "--model", "model"}, "output", Use::written),
      of_flag({"quantize", "--output", "quantized"}, "model"),
      of_flag({"quantize", "--model", "model"}, "output", Use::written),
      of_flag({"report", "out"}, "output", Use::written),
      of_flag({"compare", "out", "out"}, "output", Use::written),
      of_flag({"verify", "out"}, "statement", Use::written),
      of_flag({"verify", "out", "--steps", "1"}, "scratch", Use::written),
      of_flag({"reproduce", "out"}, "output", Use::written),
      of_flag({"monitor", "--interval", "0.1", "--duration", "0.1"}, "run"),
      of_flag({"monitor", "--interval", "0.1", "--duration", "0.1"}, "output", Use::written),
  };
  return all;
}

std::vector<Place> places() {
  std::vector<Place> all = keys();
  for (const std::vector<Place>& more : {flags(), std::vector<Place>{
                                                      of_operand({"train"}),
                                                      of_operand({"eval"}),
                                                      of_operand({"validate"}),
                                                      of_operand({"estimate"}),
                                                      of_operand({"tune"}),
                                                      of_operand({"config"}),
                                                      of_operand({"preprocess"}),
                                                      of_operand({"launch-script"}, {"--docker"}),
                                                      of_operand({"datasets"}),
                                                      of_operand({"import"}, {"--output", "imported"}),
                                                      of_operand({"inspect"}),
                                                      of_operand({"report"}),
                                                      of_operand({"compare", "out"}),
                                                      of_operand({"verify"}),
                                                      of_operand({"reproduce"}, {"--output", "again"}),
                                                      of_operand({"clean"}),
                                                  }})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

constexpr std::size_t kPartsOfPlaces = 11;

/// A part of the places, so that several of them share a folder.
class BadPaths : public ::testing::TestWithParam<std::size_t> {
 protected:
  static std::vector<Place> places_of_part() {
    std::vector<Place> some;
    const std::vector<Place> all = places();
    for (std::size_t i = GetParam(); i < all.size(); i += kPartsOfPlaces) some.push_back(all[i]);
    return some;
  }
  static Ground& ground() {
    static Ground all;
    return all;
  }
  static Outcome run(const Launch& launch) { return Process(launch).wait(std::chrono::seconds(20)); }
};

void expect_blame(const Place& place, const BadPath& bad, const Outcome& outcome) {
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_THAT(outcome.code, AnyOf(0, 2, 3, 6)) << outcome.err;
  if (bad.cannot_be && place.use == Use::read) {
    EXPECT_THAT(outcome.code, AnyOf(2, 3)) << outcome.err;
  }
  EXPECT_THAT(outcome.err, Not(HasSubstr("internal error")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("filesystem error")));
  EXPECT_LT(outcome.peak_kib, kMemoryKib);
}

TEST_P(BadPaths, AreBlamedAndNotTheProgram) {
  for (const Place& place : places_of_part())
    for (const BadPath& bad : bad_paths()) {
      if (bad.may_be_waited && place.use == Use::written) continue;
      SCOPED_TRACE(place.name + ": " + bad.name);
      ground().reset();
      expect_blame(place, bad, run(launch_of({.words = place.words(bad.path), .folder = ground().folder()})));
    }
}

// Root may read everything, so the program runs as another user here.
TEST_P(BadPaths, ThatMayNotBeReadAreBlamed) {
  Words other_user;
  if (::geteuid() == 0) {
    other_user = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    Words trial = other_user;
    trial.insert(trial.end(), {program(), "--version"});
    if (run({.argv = trial, .folder = ground().folder()}).code != 0) GTEST_SKIP() << "no other user can run this";
    fs::permissions(ground().folder(), fs::perms::others_all, fs::perm_options::add);  // for outputs
  } else {
    fs::permissions(ground().folder() / "private", fs::perms::none);
  }
  for (const Place& place : places_of_part()) {
    SCOPED_TRACE(place.name);
    ground().reset();
    Launch launch = launch_of({.words = place.words("private/x"), .folder = ground().folder()});
    launch.argv.insert(launch.argv.begin(), other_user.begin(), other_user.end());
    const Outcome outcome = run(launch);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_THAT(outcome.code, AnyOf(2, 3, 6)) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("internal error")));
    if (place.use == Use::read) {
      EXPECT_THAT(outcome.out + outcome.err, HasSubstr("private"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadPaths, ::testing::Range(std::size_t{0}, kPartsOfPlaces));

}  // namespace
}  // namespace qtrain::e2e
