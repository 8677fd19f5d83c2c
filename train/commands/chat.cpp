#include <fmt/format.h>

#include <fstream>

#include "train/answers.h"
#include "train/cli/arguments.h"
#include "train/cli/line_editor.h"
#include "train/commands/sampling_flags.h"
#include "train/stop.h"

namespace qtrain {
namespace {

/// A conversation and the commands about it.
class ChatSession {
 public:
  ChatSession(Answerer& answerer, AnswerOptions options, Log& log)
      : answerer_(answerer), options_(std::move(options)), log_(log) {}

  void set_system(const std::string& text) {
    system_ = text;
    if (!messages_.empty() && messages_[0]["role"] == "system") messages_.erase(0);
    if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
  }
  void reset() {
    messages_ = Json::array();
    set_system(system_);
  }
  void save(const std::string& file) const;
  void answer(const std::string& question);

 private:
  Answerer& answerer_;
  AnswerOptions options_;
  Log& log_;
  Json messages_ = Json::array();
  std::string system_;
};

// Prints the answer as it grows.
void ChatSession::answer(const std::string& question) {
  messages_.push_back({{"role", "user"}, {"content", question}});
  const TextFolder& text = answerer_.model().text;
  StreamDecoder decoder(*text.tokenizer, {.skip_special = true});
  std::string answer;
  const auto show = [&](const std::string& piece) {
    answer += piece;
    log_.result_stream(piece);
  };
  set_stop_answer("stopping this answer; again leaves at once");
  options_.on_token = [&](std::size_t, const std::vector<std::int32_t>& tokens) {
    show(decoder.push(tokens.back()));
    return stop_requested();
  };
  const Answer given = answerer_.answer({encode_chat(text, {.messages = messages_})}, options_).front();
  show(decoder.finish());
  log_.result_stream("\n");
  messages_.push_back({{"role", "assistant"}, {"content", answer}});
  if (stop_requested())
    log_.info("[stopped after {} tokens]", given.tokens);
  else if (std::string_view(given.finish_reason) == "length")
    log_.info("[cut at {} tokens; --max_new_tokens]", given.tokens);
}

// One more row, as training reads them.
void ChatSession::save(const std::string& file) const {
  std::ofstream out(file, std::ios::app);
  out << dump_json({{"messages", messages_}}) << "\n" << std::flush;
  if (out)
    log_.info("{} messages added to {} as one row", messages_.size(), file);
  else
    log_.error("{}: cannot be written", file);
}

struct ChatCommand {
  std::string_view name, operand, doc;
  void (*run)(ChatSession&, const std::string& operand);
};
constexpr ChatCommand kCommands[] = {
    {"/reset", "", "forget all turns", [](ChatSession& s, const std::string&) { s.reset(); }},
    {"/system", "TEXT", "the system message from now on; none without TEXT",
     [](ChatSession& s, const std::string& text) { s.set_system(text); }},
    {"/save", "FILE.jsonl", "add the conversation to a file, as a row to train on",
     [](ChatSession& s, const std::string& file) { s.save(file); }},
};

std::string chat_help() {
  std::string out = fmt::format("  {:<18} {}\n", "/help", "these lines");
  for (const ChatCommand& c : kCommands)
    out += fmt::format("  {:<18} {}\n", fmt::format("{} {}", c.name, c.operand), c.doc);
  return out + "  Ctrl-C stops an answer, Ctrl-D ends; a line that begins with // is a message that begins with /";
}

void run_chat_command(const std::string& line, ChatSession& session, Log& log) {
  const auto space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const auto begin = std::min(line.find_first_not_of(' ', space), line.size());
  const std::string operand = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  if (name == "/help") return log.info("{}", chat_help());
  for (const ChatCommand& c : kCommands)
    if (c.name == name) {
      if (name == "/save" && operand.empty()) return log.error("/save needs the name of a file");
      return c.run(session, operand);
    }
  log.error("there is no command {}; /help lists them", name);
}

}  // namespace

int run_chat(const Arguments& args) {
  const AnswerModelRequest request = answer_request(args);
  Ctx ctx = make_context(answer_compute(request, {.device = args.device(),
                                                  .threads = static_cast<int>(args.integer("threads").value_or(0))}),
                         args.log());
  AnswerModel model = declare_answer_model(ctx, request);
  AnswerOptions options = answer_options(args, model);
  Answerer answerer(ctx, std::move(model), args.log());
  // The whole context: memory for later turns is planned at the first.
  answerer.prepare(std::min<std::int64_t>(answerer.model().setup.model->config().max_position_embeddings, 4096),
                   {.batch = 1});
  ChatSession session(answerer, std::move(options), args.log());
  session.set_system(args.text("system").value_or(""));
  LineEditor lines(args.log(), state_file("chat_history"));
  args.log().info("type a message; /help lists commands, Ctrl-D ends");
  for (;;) {
    set_stop_answer("Ctrl-D ends");
    const LineEditor::Input input = lines.read();
    if (input.event == LineEditor::Event::end || (stop_requested() && !interrupted())) break;
    if (input.event == LineEditor::Event::interrupted) {
      set_stop_requested(false);
      args.log().stream("\n");
      continue;
    }
    if (input.text.find_first_not_of(" \t") == std::string::npos) continue;
    if (input.text.starts_with('/') && !input.text.starts_with("//"))
      run_chat_command(input.text, session, args.log());
    else
      session.answer(input.text.starts_with("//") ? input.text.substr(1) : input.text);
    if (interrupted()) set_stop_requested(false);
  }
  return 0;
}

}  // namespace qtrain
