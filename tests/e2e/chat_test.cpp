// Conversations that do not end with Ctrl-D.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kSoon{kThreadSanitizer ? 20 : 5};

/// A model with random weights.
class Chat : public ::testing::Test {
 protected:
  std::string model(int positions) {
    write_untrained_model(folder_ / "random");
    Json config = read_json(folder_ / "random/config.json");
    config.update({{"initializer_range", 0.6}, {"tie_word_embeddings", false}, {"max_position_embeddings", positions}});
    write_file(folder_ / "random/config.json", dump_json(config));
    Json run = tiny_run(folder_ / "model");
    run.update({{"model_name_or_path", (folder_ / "random").string()},
                {"random_init", true},
                {"max_steps", 1},
                {"learning_rate", 0.0}});
    train_ok(folder_.path(), run);
    return (folder_ / "model").string();
  }
  Launch on_a_terminal(const std::string& folder) const {
    return {.argv = {program(), "chat", "--model", folder, "--greedy", "--max_new_tokens", "30000"},
            .environment = {"XDG_STATE_HOME=" + (folder_ / "state").string(), "TERM=xterm", "NO_COLOR=1"},
            .columns = 100};
  }
  Outcome piped(const std::string& folder, const std::string& input, const std::string& longest = "5") const {
    return qtrain({.words = {"chat", "--model", folder, "--greedy", "--max_new_tokens", longest}, .input = input});
  }
  TempFolder folder_;
};

/// Zeroes the end token's row of the head, so that it is never the most likely token.
void let_answers_never_end(const fs::path& folder) {
  constexpr std::size_t kEnd = 2, kHidden = 48;
  std::string bytes = bytes_of(folder / "model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json tensors = parse_json(bytes.substr(sizeof header, header), "header");
  const std::size_t head = tensors.at("lm_head.weight").at("data_offsets")[0], row = kHidden * sizeof(float);
  bytes.replace(sizeof header + header + head + kEnd * row, row, row, '\0');
  write_file(folder / "model.safetensors", bytes);
}

TEST_F(Chat, ATerminateSignalEndsItAtThePromptAndInAnAnswer) {
  const std::string folder = model(32768);
  for (const int number : {SIGTERM, SIGHUP, SIGUSR1}) {
    Process chat(on_a_terminal(folder));
    ASSERT_TRUE(chat.waits_for("Ctrl-D quits.\r\n")) << chat.said();
    chat.signal(number);
    const Outcome outcome = chat.wait(kSoon);
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("stopped by a signal"), Not(HasSubstr("warning: press Ctrl-D"))));
  }
  let_answers_never_end(folder);
  Process chat(on_a_terminal(folder));
  ASSERT_TRUE(chat.waits_for("Ctrl-D quits.\r\n")) << chat.said();
  chat.type("hello\r");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  chat.signal(SIGTERM);
  const Outcome outcome = chat.wait(kSoon);
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[stopped after"));
}

// The file may be one that the user has put there.
TEST_F(Chat, BytesThatAreNoTextAndAFileThatIsNoHistoryAreLeftAlone) {
  const fs::path history = folder_ / "state/qtrain/chat_history";
  fs::create_directories(history.parent_path());
  write_file(history, "mine\n");
  Launch launch = on_a_terminal(model(64));
  launch.environment.emplace_back("LC_ALL=C.UTF-8");
  Process chat(launch);
  ASSERT_TRUE(chat.waits_for("> ")) << chat.said();
  for (int i = 0; i < 120; ++i) chat.type(std::string(2000, '\xff'));
  chat.type("/help\r");
  EXPECT_TRUE(chat.waits_for("show this help")) << chat.said().substr(0, 500);
  for (int i = 0; i < 50 && chat.running(); ++i) {  // between two prompts, it is no end
    chat.type("\x04");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(chat.wait(kSoon).code, 0);
  EXPECT_EQ(bytes_of(history), "mine\n");
}

TEST_F(Chat, ATerminateSignalInAnAnswerEndsItWhileMessagesComeFromAPipe) {
  const std::string folder = model(32768);
  let_answers_never_end(folder);
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Descriptor end(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));  // stays open, so that another message could come
  const std::string message = "hello\n";
  ASSERT_EQ(::write(end.get(), message.data(), message.size()), static_cast<ssize_t>(message.size()));
  Launch launch = on_a_terminal(folder);
  launch.columns.reset();
  launch.argv.insert(launch.argv.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" < " + pipe.string()});
  Process chat(launch);
  ASSERT_TRUE(chat.waits_for("Ctrl-D quits.")) << chat.said();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  chat.signal(SIGTERM);
  const Outcome outcome = chat.wait(kSoon);
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[stopped after"));
}

TEST_F(Chat, AnInterruptWhileTheModelLoadsEndsIt) {
  const std::string folder = model(64);
  const fs::path file = fs::path(folder) / "tokenizer.json";
  std::string text = bytes_of(file), many;
  for (int i = 0; i < 500'000; ++i)  // reading them takes seconds
    many += fmt::format(R"({{"id":{},"content":"<|{}|>","single_word":false,"lstrip":false,"rstrip":false,)"
                        R"("normalized":false,"special":true}},)",
                        400 + i, i);
  const std::string before = "\"added_tokens\":";
  text.insert(text.find('[', text.find(before)) + 1, many);
  write_file(file, text);
  Process chat(on_a_terminal(folder));
  ASSERT_TRUE(chat.waits_for("device: ")) << chat.said();
  chat.type("\x03");
  const Outcome outcome = chat.wait(kSoon);
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("Ctrl-D quits")));
}

TEST_F(Chat, AMessageWithoutRoomIsLeftOutAndTheConversationStays) {
  const std::string folder = model(96), file = (folder_ / "saved.jsonl").string(), words(200, 'q');
  const Outcome outcome = piped(folder, "hello\n" + words + "\nagain\n/save " + file + "\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("but the context holds only 96"), HasSubstr("/save FILE.jsonl"),
                                 HasSubstr("/reset"), HasSubstr("added 4 messages")));
  const Json messages = read_jsonl(file).at(0).at("messages");
  EXPECT_EQ(messages[0].at("content"), "hello");
  EXPECT_EQ(messages[2].at("content"), "again");
  EXPECT_THAT(piped(folder, "hello\n", "500").err, HasSubstr("the conversation fills the context of 96 tokens"));
}

TEST_F(Chat, HasRoomBeyond4096Tokens) {
  const std::string folder = model(16384);
  std::string message;
  for (int i = 0; i < 1300; ++i) message += std::to_string(i * 7919 % 1000) + " ";
  const Outcome outcome = piped(folder, message + "\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[cut off after 5 tokens"));
}

TEST_F(Chat, SavesNothingWithoutAnAnswer) {
  const std::string file = (folder_ / "saved.jsonl").string();
  const Outcome outcome = piped(model(64), "/save " + file + "\n/system be kind\n/save " + file + "\n/help\n");
  EXPECT_THAT(outcome.err, HasSubstr("there is no answer to save yet"));
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(Chat, SavesARowOfItsOwnAndOnlyToRows) {
  const std::string folder = model(64), row = R"({"messages": []})", other(8, '\0');
  const std::string document = R"({"model": "m", "messages": []})";
  const struct {
    std::string before;
    std::vector<std::string> after;  ///< how its lines begin
    const char* name = "rows.jsonl";
  } cases[] = {{"", {"{\"messages\": [{"}},
               {row + "\n", {row, "{\"messages\": [{"}},
               {row, {row, "{\"messages\": [{"}},
               {document, {document, "{\"messages\": [{"}},
               {row, {row, "{\"messages\": [{"}, "rows.json"},
               {"{}\n{}\n", {"{}", "{}", "{\"messages\": [{"}, "rows.txt"},
               {"mine", {"mine"}},
               {"{\n  \"mine\": 1\n}\n", {"{", "  \"mine\": 1", "}"}},
               {"{\"mine\": 1}\n", {"{\"mine\": 1}"}, "settings.json"},
               {"{\"mine\": 1}\n\n", {"{\"mine\": 1}", ""}, "settings"},
               {document, {document}, "request.json"},
               {other, {other}}};
  for (const auto& c : cases) {
    const fs::path file = folder_ / c.name;
    write_file(file, c.before);
    const Outcome outcome = piped(folder, "hello\n/save " + file.string() + "\n");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream text(bytes_of(file));
    std::size_t lines = 0;
    for (std::string line; std::getline(text, line); ++lines) {
      ASSERT_LT(lines, c.after.size()) << line;
      EXPECT_TRUE(line.starts_with(c.after[lines])) << line;
    }
    EXPECT_EQ(lines, c.after.size()) << c.before;
    EXPECT_EQ(outcome.err.find("is not a file of JSON rows") != outcome.err.npos, bytes_of(file) == c.before);
  }
}

TEST_F(Chat, SavesToNoFileOfItsModel) {
  const std::string folder = model(64);
  for (const std::string name : {"tokenizer.json", "tokenizer_config.json", "config.json"}) {
    const fs::path file = fs::path(folder) / name;
    const std::string before = dump_json(read_json(file)) + "\n";  // in one line, as a row is
    write_file(file, before);
    EXPECT_THAT(piped(folder, "hello\n/save " + file.string() + "\n").err, HasSubstr("is a file of the model"));
    EXPECT_EQ(bytes_of(file), before);
  }
}

TEST_F(Chat, DoesNotWaitForTheReaderOfAFifo) {
  const std::string fifo = (folder_ / "fifo").string(), file = (folder_ / "saved.jsonl").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Outcome outcome = piped(model(64), "hello\n/save " + fifo + "\n/save " + file + "\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fifo + ": cannot be written: no program reads this FIFO"));
  EXPECT_THAT(outcome.err, HasSubstr("added 2 messages to " + file));
}

TEST_F(Chat, AnswersItsCommandsWithQuietToo) {
  const std::string folder = model(64), file = (folder_ / "saved.jsonl").string();
  const Outcome outcome = qtrain({.words = {"chat", "--model", folder, "--greedy", "--max_new_tokens", "2", "--quiet"},
                                  .input = "/help\nhello\n/save " + file + "\n"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("start a new conversation"), HasSubstr("[cut off after 2 tokens"),
                                 HasSubstr("added 2 messages to " + file)));
}

TEST_F(Chat, ComparesAnAdapterWithItsModel) {
  const fs::path golden = kGoldens / "lora_llama_all", folder = folder_ / "golden";
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(golden / file, folder / file);
  write_letter_tokenizer(folder, read_json(folder / "config.json").at("vocab_size"));
  write_file(folder / "chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const std::string model = folder.string(), adapter = (golden / "adapter").string(), question = letters({5, 6, 7});
  const std::vector<std::string> more{"--greedy", "--max_new_tokens", "8"};
  const auto words = [&](std::vector<std::string> first) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  const std::string
      base = qtrain_ok({.words = words({"generate", "--model", model, "--prompt", question})}).out,
      adapted =
          qtrain_ok({.words = words({"generate", "--model", model, "--adapter", adapter, "--prompt", question})}).out;
  EXPECT_NE(base, adapted);
  const Outcome both = qtrain_ok(
      {.words = words({"chat", "--model", model, "--adapter", adapter, "--compare"}), .input = question + "\n"});
  EXPECT_EQ(both.out, base + adapted);
  EXPECT_THAT(both.err, AllOf(HasSubstr("[base]"), HasSubstr("[adapter]")));
  EXPECT_EQ(qtrain({.words = {"chat", "--model", model, "--compare"}}).code, 2);
}

TEST_F(Chat, SavesNothingAtTheCostOfAnotherProgramOnAFullDisk) {
  if (std::string_view(QTRAIN_SHORTAGE).empty()) GTEST_SKIP() << "not under sanitizers";
  const fs::path rows = folder_ / "crowded.jsonl";
  Launch launch = launch_of({.words = {"chat", "--model", model(64), "--max_new_tokens", "1"},
                             .input = "hello\n/save " + rows.string() + "\n"});
  launch.environment.insert(launch.environment.end(),
                            {fmt::format("LD_PRELOAD={}", QTRAIN_SHORTAGE), "CROWDED_FILE=/crowded.jsonl"});
  const Outcome o = Process(launch).wait();
  EXPECT_THAT(o.err, HasSubstr("No space left on device"));
  EXPECT_THAT(bytes_of(rows), HasSubstr("\n{}")) << "is of the other program";
}

TEST_F(Chat, NeedsATemplate) {
  const std::string folder = model(64);
  fs::remove(fs::path(folder) / "chat_template.jinja");
  const Outcome outcome = piped(folder, "");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr(folder), HasSubstr("no chat template")));
}

}  // namespace
}  // namespace qtrain::e2e
