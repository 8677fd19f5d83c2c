// Results go through links, into devices and FIFOs, and never replace what the same command has not written.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// Reads a FIFO until it is told to stop.
class Reader {
 public:
  explicit Reader(const fs::path& fifo) : in_(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    thread_ = std::thread([this] {
      do {
        pollfd readable{.fd = in_.get(), .events = POLLIN, .revents = 0};
        ::poll(&readable, 1, 10);
        char part[4096];
        for (ssize_t n = 0; (n = ::read(in_.get(), part, sizeof part)) > 0;)
          text_.append(part, static_cast<std::size_t>(n));
      } while (!ended_);
    });
  }
  ~Reader() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  std::string all() {
    ended_ = true;
    thread_.join();
    return text_;
  }

 private:
  Descriptor in_;
  std::string text_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

mode_t kind_of(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

/// A command, to which the output path is appended.
struct Writer {
  std::string name;
  std::vector<std::string> words;
};

/// A run on a model with a tokenizer, and everything that commands need as input.
class Outputs : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(at("model"));
    write_file(at("rows.jsonl"), R"({"prompt": "a question", "completion": "an answer"})"
                                 "\n");
    Json run = tiny_run(at("run"));
    run.update({{"model_name_or_path", at("model")},
                {"dataset_name", at("rows.jsonl")},
                {"eval_dataset_name", at("rows.jsonl")},
                {"random_init", true},
                {"max_length", 32},
                {"max_steps", 1}});
    train_ok(folder_.path(), run);
    run.update(
        {{"output_dir", at("adapter")}, {"model_name_or_path", at("run")}, {"random_init", false}, {"use_peft", true}});
    train_ok(folder_.path(), run);
    run.update({{"output_dir", at("next")}});
    write_file(at("config.json"), dump_json(run));
  }
  std::string at(const char* name) const { return (folder_ / name).string(); }

  std::vector<Writer> files() const {
    return {{"report", {"report", at("run"), "--output"}},
            {"compare", {"compare", at("run"), at("adapter"), "--output"}},
            {"generate", {"generate", "--model", at("run"), "--prompt", "x", "--max_new_tokens", "1", "--output"}},
            {"eval", {"eval", at("config.json"), "--base", "--generate", "--max_new_tokens", "1", "--rows"}},
            {"preprocess", {"preprocess", at("config.json"), "--dump"}},
            {"tune", {"tune", at("config.json"), "--steps", "1", "--trials", "1", "--output"}},
            {"bench", {"bench", "rms_norm", "--small", "--json"}},
            {"monitor", {"monitor", "--duration", "0.2", "--interval", "0.1", "--json"}},
            {"verify", {"verify", at("run"), "--statement"}},
            {"export", {"export", "--model", at("run"), "--output"}},
            {"export an adapter", {"export", "--model", at("run"), "--adapter", at("adapter"), "--output"}},
            {"export merged", {"export", "--model", at("run"), "--adapter", at("adapter"), "--merge", "--output"}}};
  }
  /// `import` needs the file at("model.gguf").
  std::vector<Writer> folders() const {
    return {{"merge", {"merge", "--model", at("run"), "--adapter", at("adapter"), "--output"}},
            {"quantize", {"quantize", "--model", at("run"), "--output"}},
            {"import", {"import", at("model.gguf"), "--output"}},
            {"import a tokenizer",
             {"import", QTRAIN_SOURCE_DIR "/tests/convert/goldens/gguf_vocab/qwen2.gguf", "--output"}}};
  }
  void make_gguf() const { qtrain_ok({.words = {"export", "--model", at("run"), "--output", at("model.gguf")}}); }

  static std::vector<std::string> with(const Writer& writer, std::vector<std::string> more) {
    std::vector<std::string> words = writer.words;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TempFolder folder_;
};

TEST_F(Outputs, GoThroughLinksIntoFifosAndIntoDevices) {
  const bool has_device = ::mknod(at("device").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0;  // as /dev/null
  for (const Writer& writer : files()) {
    SCOPED_TRACE(writer.name);
    fs::create_directories(folder_ / "elsewhere");
    fs::create_symlink("elsewhere/file", folder_ / "link");
    qtrain_ok({.words = with(writer, {at("link")})});
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
    EXPECT_EQ(kind_of(folder_ / "elsewhere/file"), mode_t{S_IFREG});
    EXPECT_GT(fs::file_size(folder_ / "elsewhere/file"), 0u);

    ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
    Reader reader(at("fifo"));
    qtrain_ok({.words = with(writer, {at("fifo")})});
    EXPECT_EQ(kind_of(at("fifo")), mode_t{S_IFIFO});
    EXPECT_EQ(reader.all().substr(0, 8), bytes_of(folder_ / "elsewhere/file").substr(0, 8));

    if (has_device) {
      qtrain_ok({.words = with(writer, {at("device")})});
      EXPECT_EQ(kind_of(at("device")), mode_t{S_IFCHR});
      EXPECT_FALSE(fs::exists(at("device.merging")));
    }
    for (const char* name : {"link", "fifo", "elsewhere"}) fs::remove_all(folder_ / name);
  }
}

TEST_F(Outputs, OfFilesReplaceTheirOwnEarlierOnesOnly) {
  for (const Writer& writer : files()) {
    SCOPED_TRACE(writer.name);
    const std::string mine = R"({"text": "mine"})"
                             "\n";
    write_file(at("file"), mine);
    const Outcome refused = qtrain({.words = with(writer, {at("file")})});
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
    EXPECT_EQ(bytes_of(at("file")), mine);
    qtrain_ok({.words = with(writer, {at("file"), "--overwrite"})});
    EXPECT_NE(bytes_of(at("file")), mine);
    qtrain_ok({.words = with(writer, {at("file")})});
    const std::string inside = at("run") + "/tokenizer.json", before = bytes_of(inside);
    EXPECT_EQ(qtrain({.words = with(writer, {inside})}).code, 2);
    EXPECT_EQ(bytes_of(inside), before);
    EXPECT_EQ(qtrain({.words = with(writer, {at("model")})}).code, 2) << "a folder";
    fs::remove(at("file"));
  }
}

// Others write some of the same keys and titles.
TEST_F(Outputs, OfFilesLeaveThoseOfOthersThatLookLikeThem) {
  const std::string page = "<!DOCTYPE html>\n<html><head><title>notes - qtrain</title></head></html>";
  const Json definition{{"buildType", "https://actions.github.io/buildtypes/workflow/v1"}},
      statement{{"_type", "https://in-toto.io/Statement/v1"},
                {"subject", Json::array()},
                {"predicateType", "https://slsa.dev/provenance/v1"},
                {"predicate", {{"buildDefinition", definition}}}};
  std::map<std::string, std::vector<std::string>> others{
      {"monitor", {R"({"samples": [{"text": "mine"}]})", R"({"samples": [], "license": "mine"})", R"({"samples": 3})"}},
      {"tune", {R"({"_written_by": "another program", "mine": 1})"}},
      {"verify", {dump_json(statement), R"({"_type": "", "subject": [], "predicateType": "", "predicate": null})"}},
      {"preprocess", {R"({"input_ids": [1], "labels": [1], "position_ids": [0], "source": "mine"})"}},
      {"report", {page}},
      {"compare", {page}}};
  std::string vocabulary = "{\"<s>\": 0";
  for (int i = 1; i < 200'000; ++i) vocabulary += fmt::format(", \"token{}\": {}", i, i);
  others["bench"] = {vocabulary + "}"};
  for (const Writer& writer : files()) {
    const auto those = others.find(writer.name);
    if (those == others.end()) continue;
    for (const std::string& mine : those->second) {
      SCOPED_TRACE(writer.name + ": " + mine.substr(0, 200));
      write_file(at("file"), mine);
      const Outcome refused = qtrain({.words = with(writer, {at("file")})});
      EXPECT_EQ(refused.code, 2) << refused.err;
      EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
      EXPECT_EQ(bytes_of(at("file")), mine);
    }
  }
}

TEST_F(Outputs, OfFilesWithoutAFolderAreRefusedBeforeTheWork) {
  for (const Writer& writer : files()) {
    SCOPED_TRACE(writer.name);
    for (const char* name : {"none/file", "none/"}) {
      const Outcome o = qtrain({.words = with(writer, {at(name)})});
      EXPECT_EQ(o.code, 6) << o.err;
      EXPECT_THAT(o.err, HasSubstr(at(name) + ": cannot be written"));
    }
  }
}

// A result may be written long after its place was checked.
TEST_F(Outputs, LeaveAFileThatWasMadeMeanwhile) {
  const std::string mine = "{\"text\": \"mine\"}\n";
  fs::create_directory(folder_ / "scratch");
  Process verifying(
      launch_of({.words = {"verify", at("run"), "--scratch", at("scratch"), "--statement", at("statement.json")}}));
  while (verifying.running() && fs::is_empty(folder_ / "scratch"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  write_file(at("statement.json"), mine);
  const Outcome o = verifying.wait();
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(bytes_of(at("statement.json")), mine);
  EXPECT_THAT(o.err, HasSubstr("writing the result to " + at("statement.json.2")));
  EXPECT_TRUE(read_json(at("statement.json.2")).contains("predicate"));
}

TEST_F(Outputs, OfFoldersReplaceTheirOwnEarlierOnesOnly) {
  make_gguf();
  for (const Writer& writer : folders()) {
    SCOPED_TRACE(writer.name);
    fs::copy(at("run"), at("taken"));
    const std::string weights = at("taken") + "/model.safetensors", before = bytes_of(weights);
    // Whatever the name: the folder is created if it does not exist, and then recognized as the same one.
    for (const char* name : {"taken", "taken/", "none/../taken"}) {
      const Outcome refused = qtrain({.words = with(writer, {at(name)})});
      EXPECT_EQ(refused.code, 2) << name << ": " << refused.err;
      EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
    }
    EXPECT_EQ(bytes_of(weights), before);
    EXPECT_FALSE(fs::exists(at("taken/.qtrain_result.json")));
    fs::create_directories(folder_ / "elsewhere/deep");
    fs::create_directory_symlink("elsewhere/deep", folder_ / "up");
    qtrain_ok({.words = with(writer, {at("up/../taken")})});
    EXPECT_TRUE(fs::exists(folder_ / "elsewhere/taken/tokenizer.json"));
    EXPECT_FALSE(fs::exists(at("taken/.qtrain_result.json")));
    qtrain_ok({.words = with(writer, {at("taken"), "--overwrite"})});

    fs::create_directories(folder_ / "out/notes");
    EXPECT_EQ(qtrain({.words = with(writer, {at("out")})}).code, 2) << "it is not empty";
    fs::remove(folder_ / "out/notes");
    fs::create_directory_symlink("out", folder_ / "link");
    qtrain_ok({.words = with(writer, {at("link")})});
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
    qtrain_ok({.words = with(writer, {at("out")})});
    write_file(folder_ / "out/model-of-another.bin", "weights");
    EXPECT_EQ(qtrain({.words = with(writer, {at("out")})}).code, 2) << "the folder has weights of another program";
    for (const char* name : {"link", "out", "taken", "up", "elsewhere"}) fs::remove_all(folder_ / name);
  }
}

TEST_F(Outputs, AreNeitherWhatIsReadNorInIt) {
  make_gguf();
  fs::create_directory_symlink("run", folder_ / "also_run");
  std::vector<Writer> all = folders();
  all.erase(all.begin() + 2, all.end());
  for (const Writer& writer : files())
    if (writer.words[0] == "export") all.push_back(writer);
  for (const Writer& writer : all) {
    SCOPED_TRACE(writer.name);
    std::vector<std::string> places{"run", "run/new", "also_run/new"};
    if (writer.name.find("merge") != std::string::npos) places.insert(places.end(), {"adapter", "adapter/new"});
    for (const std::string& place : places) {
      const Outcome refused = qtrain({.words = with(writer, {(folder_ / place).string(), "--overwrite"})});
      EXPECT_EQ(refused.code, 2) << place << refused.err;
      EXPECT_FALSE(fs::exists(folder_ / "run/new"));
      EXPECT_FALSE(fs::exists(folder_ / "adapter/new"));
    }
  }
  EXPECT_EQ(qtrain({.words = {"generate", "--model", at("run"), "--input", at("rows.jsonl"), "--output",
                              at("rows.jsonl"), "--overwrite"}})
                .code,
            2);
}

TEST_F(Outputs, AreNoneOfTheFilesThatModelsConfigsAndRunsAreMadeOf) {
  const std::map<std::string, std::vector<std::string>> read{
      {"report", {"run/metrics.jsonl", "run/trainer_state.json"}},
      {"compare", {"run/metrics.jsonl", "adapter/resolved_config.json"}},
      {"generate", {"run/config.json", "run/model.safetensors"}},
      {"eval", {"config.json", "rows.jsonl", "run/tokenizer.json"}},
      {"preprocess", {"config.json", "rows.jsonl", "run/config.json"}},
      {"tune", {"rows.jsonl", "run/model.safetensors"}},
      {"verify", {"run/manifest.json", "model/tokenizer.json", "rows.jsonl"}}};
  const auto expect_refused = [&](const std::string& place, std::vector<std::string> words) {
    const std::string before = bytes_of(folder_ / place);
    const Outcome refused = qtrain({.words = std::move(words)});
    EXPECT_EQ(refused.code, 2) << place << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("an input of the command"));
    EXPECT_TRUE(bytes_of(folder_ / place) == before) << place;
  };
  for (const Writer& writer : files()) {
    SCOPED_TRACE(writer.name);
    if (const auto places = read.find(writer.name); places != read.end())
      for (const std::string& place : places->second)
        expect_refused(place, with(writer, {(folder_ / place).string(), "--overwrite"}));
  }
  expect_refused("rows.jsonl", {"train", at("config.json"), "--events", at("rows.jsonl")});
}

TEST_F(Outputs, OfCommandsSayWhoWroteThem) {
  make_gguf();
  qtrain_ok({.words = with(folders()[0], {at("merged")})});
  qtrain_ok({.words = with(folders()[1], {at("quantized")})});
  EXPECT_EQ(read_json(folder_ / "merged/.qtrain_result.json").at("written_by"), "qtrain merge");
  EXPECT_EQ(read_json(folder_ / "quantized/.qtrain_result.json").at("written_by"), "qtrain quantize");
  const Outcome other = qtrain({.words = with(folders()[1], {at("merged")})});
  EXPECT_EQ(other.code, 2) << "another command wrote it";
  fs::copy_file(at("run") + "/model.safetensors", at("merged") + "/model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(qtrain({.words = with(folders()[0], {at("merged")})}).code, 2) << "its weights were replaced since";
}

TEST_F(Outputs, OfARunDoNotReplaceWeightsThatNoRunHasWritten) {
  make_gguf();
  qtrain_ok({.words = with(folders()[2], {at("imported")})});
  fs::create_directory(at("pickles"));
  write_file(folder_ / "pickles/pytorch_model.bin", "weights");
  for (const auto& [name, file] :
       {std::pair("imported", "model.safetensors"), std::pair("pickles", "pytorch_model.bin")}) {
    SCOPED_TRACE(name);
    const fs::path weights = folder_ / name / file;
    const std::string before = bytes_of(weights), output = "output_dir=" + at(name);
    const Outcome refused = qtrain({.words = {at("config.json"), output}});
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
    EXPECT_EQ(bytes_of(weights), before);
    EXPECT_EQ(qtrain({.words = {"validate", at("config.json"), output}}).code, 2);
    qtrain_ok({.words = {"train", at("config.json"), output, "--overwrite"}});
    qtrain_ok({.words = {"train", at("config.json"), output, "--resume", "never"}});
  }
}

// The names are those of files that a run writes, some of which it removes first.
TEST_F(Outputs, OfARunDoNotReplaceFilesThatNoRunHasWritten) {
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "chat_template.jinja", "adapter_config.json", "metrics.jsonl", "messages.jsonl", "samples.jsonl", "report.html",
        "resolved_config.json", "trainer_state.json", "train_results.json", "manifest.json", "trace-rank-0.json"}) {
    SCOPED_TRACE(name);
    fs::create_directories(at("mine"));
    const fs::path file = folder_ / "mine" / name;
    write_file(file, "mine\n");
    const Outcome refused = qtrain({.words = {at("config.json"), "output_dir=" + at("mine")}});
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(file.string()));
    EXPECT_THAT(refused.err, HasSubstr("--overwrite"));
    EXPECT_EQ(bytes_of(file), "mine\n");
    EXPECT_EQ(qtrain({.words = {"validate", at("config.json"), "output_dir=" + at("mine")}}).code, 2);
    fs::remove_all(at("mine"));
  }
  for (const auto& [place, file] : {std::pair("additional_chat_templates", "mine.jinja"),
                                    {"checkpoint-5.tmp", "mine"},
                                    {"checkpoint-5.removed", "mine"},
                                    {"checkpoint-5.tmp", ""},
                                    {".final.tmp", "mine"}}) {
    SCOPED_TRACE(place);
    const fs::path taken = folder_ / "mine" / place, mine = *file == '\0' ? taken : taken / file;
    fs::create_directories(mine.parent_path());
    write_file(mine, "mine\n");
    const Outcome refused = qtrain({.words = {at("config.json"), "output_dir=" + at("mine")}});
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(taken.string() + ": was not written by a run"));
    EXPECT_EQ(bytes_of(mine), "mine\n");
    fs::remove_all(at("mine"));
  }
  fs::create_directories(at("mine"));
  write_file(folder_ / "mine/notes.txt", "mine\n");
  write_file(folder_ / "mine/metrics.jsonl", "");  // as a run that was killed leaves it
  qtrain_ok({.words = {at("config.json"), "output_dir=" + at("mine")}});
  qtrain_ok({.words = {at("config.json"), "output_dir=" + at("mine"), "--resume", "never"}});
  write_file(folder_ / "mine/other.html", "mine\n");
  EXPECT_EQ(bytes_of(folder_ / "mine/notes.txt"), "mine\n");
}

TEST_F(Outputs, OfARunDoNotReplaceCheckpoints) {
  const std::string keys = at("saves.json"), checkpoint = at("saved/checkpoint-1");
  Json saves = read_json(at("config.json"));
  saves.update({{"output_dir", at("saved")}, {"save_strategy", "steps"}, {"save_steps", 1}, {"use_peft", false}});
  write_file(keys, dump_json(saves));
  qtrain_ok({.words = {keys}});
  const std::string before = bytes_of(checkpoint + "/manifest.json");
  for (const auto& words :
       std::vector<std::vector<std::string>>{{"train", keys, "output_dir=" + checkpoint},
                                             {"train", keys, "output_dir=" + checkpoint, "--resume", checkpoint},
                                             {"train", keys, "output_dir=" + checkpoint, "--overwrite"},
                                             {"validate", keys, "output_dir=" + checkpoint},
                                             {"reproduce", at("saved"), "--output", checkpoint}}) {
    SCOPED_TRACE(words[0] + " " + words.back());
    const Outcome refused = qtrain({.words = words});
    EXPECT_EQ(refused.code, 2) << refused.out << refused.err;
    EXPECT_THAT(refused.out + refused.err, HasSubstr("would damage checkpoint-1"));
    EXPECT_EQ(bytes_of(checkpoint + "/manifest.json"), before);
  }
}

// Even with --overwrite.
TEST_F(Outputs, OfARunDoNotReplaceItsInputs) {
  const Json config = read_json(at("config.json"));
  const auto rows = config["dataset_name"].is_array() ? config["dataset_name"][0] : config["dataset_name"];
  const auto expect_kept = [&](const fs::path& input, const std::string& start, const std::vector<std::string>& keys) {
    SCOPED_TRACE(input);
    const std::string before = bytes_of(input);
    for (const std::string command : {"train", "validate"}) {
      std::vector<std::string> words{command, start};
      words.insert(words.end(), keys.begin(), keys.end());
      if (command == "train") words.emplace_back("--overwrite");
      const Outcome refused = qtrain({.words = words, .folder = folder_.path()});
      EXPECT_EQ(refused.code, 2) << refused.out << refused.err;
      EXPECT_THAT(refused.out + refused.err, HasSubstr("is an input of the run"));
      EXPECT_TRUE(bytes_of(input) == before);
    }
  };
  fs::create_directories(folder_ / "here");
  fs::copy(at("config.json"), folder_ / "here/config.json");
  const std::string output = "output_dir=" + at("here");
  expect_kept(folder_ / "here/config.json", at("here/config.json"), {output});
  fs::create_directory_symlink(at("here"), at("link"));
  expect_kept(folder_ / "here/config.json", at("here/config.json"), {"output_dir=" + at("link")});
  fs::rename(folder_ / "here/config.json", folder_ / "here/run.json");
  fs::copy(rows.get<std::string>(), folder_ / "here/metrics.jsonl");
  expect_kept(folder_ / "here/metrics.jsonl", at("here/run.json"),
              {output, "dataset_name=" + at("here/metrics.jsonl")});
  fs::create_symlink(at("here/metrics.jsonl"), at("link.jsonl"));
  expect_kept(folder_ / "link.jsonl", at("here/run.json"), {output, "dataset_name=" + at("link.jsonl")});
  fs::rename(folder_ / "here/metrics.jsonl", folder_ / "elsewhere.jsonl");
  fs::create_symlink(at("elsewhere.jsonl"), at("here/metrics.jsonl"));
  expect_kept(folder_ / "elsewhere.jsonl", at("here/run.json"), {output, "dataset_name=" + at("elsewhere.jsonl")});
  fs::remove(folder_ / "here/metrics.jsonl");
  fs::copy(config["model_name_or_path"].get<std::string>(), at("model_here"), fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(at("model_here")))
    if (entry.path().extension() == ".safetensors") fs::remove(entry.path());
  expect_kept(folder_ / "model_here/config.json", at("config.json"),
              {"model_name_or_path=" + at("model_here"), "random_init=true", "use_peft=false",
               "output_dir=" + at("model_here")});
}

}  // namespace
}  // namespace qtrain::e2e
