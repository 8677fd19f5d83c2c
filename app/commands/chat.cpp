#include <fmt/format.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "app/answers.h"
#include "app/cli/answer_columns.h"
#include "app/cli/line_editor.h"
#include "app/commands/commands.h"
#include "app/commands/read_files.h"
#include "app/commands/sampling_flags.h"
#include "core/os/append.h"
#include "core/os/file.h"
#include "core/os/stop.h"
#include "core/os/terminal.h"
#include "core/plural.h"
#include "core/utf8.h"
#include "data/source/raw_rows.h"
#include "text/tokenizer/tokenizer.h"
#include "train/checkpoint/foreign_results.h"
#include "train/setup/compute.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxRoom = 32768;  // tokens of a conversation; rotary tables cover all of them

// Prints a line that the user waits for, even with --quiet.
void print_line(Log& log, const std::string& line) {
  log.stream(line + "\n");
}

/// Shows answers to one message while they are generated: several answers side by side if the terminal is wide enough,
/// else one below the other, with the text on stdout and notes on stderr.
class AnswerView {
 public:
  AnswerView(Log& log, std::size_t answers) : log_(log) {
    const int width = terminal_width(STDOUT_FILENO);
    const bool shown = terminal_of(STDOUT_FILENO).redraws && terminal_of(STDERR_FILENO).redraws;
    if (answers > 1 && shown && width >= AnswerColumns::kMinWidth)
      columns_.emplace(AnswerColumns::Screen{width, terminal_height(STDOUT_FILENO)}, static_cast<int>(answers));
  }

  void begin(const std::string& name) {
    if (columns_) log_.result_stream(columns_->begin());
    if (!name.empty()) say(fmt::format("[{}]", name));
    if (columns_) show("\n");
  }
  void show(const std::string& text) {
    log_.result_stream(columns_ ? columns_->add(printable(text)) : written_result(text, ResultText::data));
  }
  /// `why` says what cut the answer off; empty if the model ended it.
  void end(const std::string& why) {
    if (!columns_ || !why.empty()) show("\n");
    if (!why.empty()) say(why);
    if (columns_ && stop_requested()) columns_->forget();  // the message about the stop was printed in between
  }
  /// Moves below all answers.
  void close() {
    if (columns_) log_.result_stream(columns_->end());
    columns_.reset();
  }

 private:
  void say(const std::string& line) {
    if (columns_)
      show(line);
    else
      print_line(log_, line);
  }

  Log& log_;
  std::optional<AnswerColumns> columns_;
};

/// A conversation of up to `room` tokens, and the chat commands on it.
class ChatSession {
 public:
  struct Parts {
    Answerer& answerer;
    AnswerOptions options;
    std::int64_t room;
    std::string name = {};                   ///< printed before each answer; empty if there is only one model
    std::vector<fs::path> model_files = {};  ///< to which no conversation is saved
  };
  ChatSession(Parts parts, Log& log)
      : answerer_(parts.answerer),
        options_(std::move(parts.options)),
        room_(parts.room),
        name_(std::move(parts.name)),
        model_files_(std::move(parts.model_files)),
        log_(log) {}

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
  void answer(const std::string& question, AnswerView& view);

 private:
  std::string answer_to_all(AnswerView& view);
  std::string why_cut(const Answer& given, std::int64_t most) const;

  Answerer& answerer_;
  AnswerOptions options_;
  std::int64_t room_;
  std::string name_;
  std::vector<fs::path> model_files_;
  Log& log_;
  Json messages_ = Json::array();
  std::string system_;
};

// Removes a message that cannot be answered, so that the turns before it can still be saved.
void ChatSession::answer(const std::string& question, AnswerView& view) {
  messages_.push_back({{"role", "user"}, {"content", question}});
  try {
    messages_.push_back({{"role", "assistant"}, {"content", answer_to_all(view)}});
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    messages_.erase(messages_.size() - 1);
    view.close();
    log_.error("{}\n  the message was dropped; /save FILE.jsonl saves the conversation, /reset starts a new one",
               e.what());
  }
}

// Prints the answer while it is generated.
std::string ChatSession::answer_to_all(AnswerView& view) {
  const TextFolder& text = answerer_.model().text;
  const auto prompt = with_place("the conversation", [&] { return encode_chat(text, {.messages = messages_}); });
  const auto size = static_cast<std::int64_t>(prompt.size());
  if (size >= room_)
    fail(ErrorKind::input, {.cause = fmt::format("with this message the conversation has {} tokens, but the context "
                                                 "holds only {}",
                                                 size, room_)});
  AnswerOptions options = options_;
  options.max_new_tokens = std::min(options.max_new_tokens, room_ - size);
  StreamDecoder decoder(*text.tokenizer, {.skip_special = true});
  std::string answer;
  view.begin(name_);
  const auto show = [&](const std::string& piece) {
    answer += piece;
    view.show(piece);
  };
  set_stop_answer("Stopping. Press Ctrl-C to quit now.", "Stopping this answer. Press Ctrl-C again to quit now.");
  options.on_token = [&](std::size_t, const std::vector<std::int32_t>& tokens) {
    show(decoder.push(tokens.back()));
    return stop_requested();
  };
  const Answer given = answerer_.answer({prompt}, options).front();
  show(decoder.finish());
  view.end(why_cut(given, options.max_new_tokens));
  return answer;
}

std::string ChatSession::why_cut(const Answer& given, std::int64_t most) const {
  const std::string tokens = counted(given.tokens, "token");
  if (stop_requested()) return fmt::format("[stopped after {}]", tokens);
  if (std::string_view(given.finish_reason) != "length") return "";
  if (most == options_.max_new_tokens)
    return fmt::format("[cut off after {}: raise --max_new_tokens for longer answers]", tokens);
  return fmt::format("[cut off after {}: the conversation fills the context of {} tokens; /reset starts a new one]",
                     tokens, room_);
}

// The JSON in the next line; null if it is none, or very long.
Json next_row(std::istream& in) {
  constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
  std::string line;
  for (char c = 0; line.size() < kMaxBytes && in.get(c) && c != '\n';) line += c;
  return json_in(line);
}

// Whether a row can be appended to the file: not to a document, which may be a single line, too. What a single line is
// can be told by the file's name, or if it is a conversation and nothing else.
bool is_file_of_rows(const std::string& file) {
  std::error_code absent;
  if (!fs::is_regular_file(file, absent) || fs::file_size(file, absent) == 0) return true;
  std::ifstream in(file);
  const Json row = next_row(in);
  if (!row.is_object()) return false;
  const bool is_named_so = file.ends_with(".jsonl") || file.ends_with(".ndjson");
  return is_named_so || (row.size() == 1 && row.contains("messages")) || next_row(in).is_object();
}

// Why the file must not be written: it is one of the models, or would damage a checkpoint. Empty: it may be written.
std::string why_not_saved(const std::string& file, const std::vector<fs::path>& model_files) {
  std::string why = fmt::format("{}: is a file of the model\n  give another name", file);
  try {
    require_outside(file, model_files);
    why.clear();
    require_no_file_of_checkpoint(file);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::usage) throw;
    return why.empty() ? e.what() : why;
  }
  return why;
}

// Appends the conversation to the file as a training row.
void ChatSession::save(const std::string& file) const {
  if (messages_.empty() || messages_.back()["role"] != "assistant") return log_.error("there is no answer to save yet");
  if (const std::string why = why_not_saved(file, model_files_); !why.empty()) return log_.error("{}", why);
  if (!is_file_of_rows(file)) return log_.error("{}: is not a file of JSON rows; give another name", file);
  const std::string row = dump_json({{"messages", messages_}}) + "\n";
  try {
    append_text(file, appending_begins_line(file) ? row : "\n" + row);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::disk) throw;
    return log_.error("{}", e.what());
  }
  print_line(log_, fmt::format("added {} to {} as one row",
                               counted(static_cast<std::int64_t>(messages_.size()), "message"), file));
}

/// Conversations with the same questions; the last one is with the requested model.
using ChatSessions = std::deque<ChatSession>;

// Ctrl-C stops one answer only, not those of the other models.
void answer(ChatSessions& sessions, const std::string& question, Log& log) {
  AnswerView view(log, sessions.size());
  for (ChatSession& s : sessions) {
    if (stop_requested() && !interrupted()) break;
    if (&s != &sessions.front() && interrupted()) set_stop_requested(false);
    s.answer(question, view);
  }
  view.close();
}

struct ChatCommand {
  std::string_view name, operand, doc;
  void (*run)(ChatSessions&, const std::string& operand);
};
constexpr ChatCommand kCommands[] = {
    {"/reset", "", "start a new conversation",
     [](ChatSessions& sessions, const std::string&) {
       for (ChatSession& s : sessions) s.reset();
     }},
    {"/system", "TEXT", "set the system message; without TEXT, remove it",
     [](ChatSessions& sessions, const std::string& text) {
       for (ChatSession& s : sessions) s.set_system(text);
     }},
    {"/save", "FILE.jsonl", "append the conversation to a file as a training row",
     [](ChatSessions& sessions, const std::string& file) { sessions.back().save(file); }},
};

std::vector<fs::path> files_of_models(const AnswerModelRequest& request) {
  std::vector<fs::path> files = files_of_model(request.model);
  for (const fs::path& file : files_of_model(request.adapter.value_or(""))) files.push_back(file);
  return files;
}

std::string chat_help() {
  std::string out = fmt::format("  {:<18} {}\n", "/help", "show this help");
  for (const ChatCommand& c : kCommands)
    out += fmt::format("  {:<18} {}\n", fmt::format("{} {}", c.name, c.operand), c.doc);
  return out + "  Ctrl-C stops an answer, Ctrl-D quits. Begin a line with // to send a message that begins with /.";
}

void run_chat_command(const std::string& line, ChatSessions& sessions, Log& log) {
  const auto space = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, space);
  const auto begin = std::min(line.find_first_not_of(' ', space), line.size());
  const std::string operand = line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  if (name == "/help") return print_line(log, chat_help());
  for (const ChatCommand& c : kCommands)
    if (c.name == name) {
      if (name == "/save" && operand.empty()) return log.error("/save needs a file name");
      return c.run(sessions, operand);
    }
  log.error("there is no command {}; /help lists them", name);
}

}  // namespace

int run_chat(const Arguments& args) {
  std::optional<StopsAtOnce> loading(std::in_place);
  const AnswerModelRequest request = answer_request(args);
  Ctx ctx = make_context(answer_compute(request, {.device = args.device(),
                                                  .threads = static_cast<int>(args.integer("threads").value_or(0))}),
                         args.log());
  AnswerModel model = declare_answer_model(ctx, request);
  warn_of_unused_settings(model, args.log());
  AnswerOptions options = answer_options(args, model);
  if (!model.text.chat_template)
    fail(ErrorKind::input, {.cause = "the model folder has no chat template",
                            .place = request.model,
                            .remedy = "put a chat_template.jinja into the folder, or use qtrain generate --raw"});
  if (args.has("compare") && !request.adapter)
    fail(ErrorKind::usage,
         {.cause = "--compare needs an adapter to compare with the model", .remedy = "add --adapter DIR"});
  // Plans memory for later turns, too.
  const std::int64_t room = std::min(model.setup.model->config().max_position_embeddings, kMaxRoom);
  std::optional<Answerer> base;
  if (args.has("compare")) {
    AnswerModelRequest without = request;
    without.adapter.reset();
    base.emplace(ctx, declare_answer_model(ctx, without), args.log());
    base->prepare(room, {.batch = 1});
  }
  Answerer answerer(ctx, std::move(model), args.log());
  if (base) answerer.share_weights_of(*base);
  answerer.prepare(room, {.batch = 1});
  loading.reset();
  throw_if_stopped();  // a stop may have been requested just before loading ended
  ChatSessions sessions;
  if (base)
    sessions.emplace_back(ChatSession::Parts{.answerer = *base, .options = options, .room = room, .name = "base"},
                          args.log());
  sessions.emplace_back(ChatSession::Parts{.answerer = answerer,
                                           .options = std::move(options),
                                           .room = room,
                                           .name = base ? "adapter" : "",
                                           .model_files = files_of_models(request)},
                        args.log());
  for (ChatSession& s : sessions) s.set_system(args.text("system").value_or(""));
  LineEditor lines(args.log(), state_file("chat_history"));
  args.log().info("Type a message. /help lists the commands, Ctrl-D quits.");
  for (;;) {
    set_stop_answer("Stopping. Press Ctrl-C to quit now.", "");  // the loop below answers an interrupt
    const LineEditor::Input input = lines.read();
    if (stop_requested() && !interrupted()) break;
    if (input.event == LineEditor::Event::end) break;
    if (input.event == LineEditor::Event::interrupted) {
      set_stop_requested(false);
      args.log().stream("\n");
      args.log().warn("press Ctrl-D to quit");
      continue;
    }
    if (input.text.find_first_not_of(" \t") == std::string::npos) continue;
    if (input.text.starts_with('/') && !input.text.starts_with("//"))
      run_chat_command(input.text, sessions, args.log());
    else
      answer(sessions, input.text.starts_with("//") ? input.text.substr(1) : input.text, args.log());
    if (stop_requested() && !interrupted()) break;
    if (interrupted()) set_stop_requested(false);
  }
  throw_if_stopped();
  return 0;
}

}  // namespace qtrain
