#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace qtrain {

/// Where the system text goes.
enum class SystemPlace : std::uint8_t { begins, in_first_question, in_last_message };

/// When the system text is rendered: if it is not empty, if there is a system message, or always.
enum class SystemText : std::uint8_t { filled, given, always };

/// A format as LLaMA-Factory and axolotl describe it: the text of a question and of an answer. Each part is a template
/// expression over `content`; the words after which the assistant speaks end a question or are the `header`.
struct TurnFormat {
  std::string_view name, prefix, system, question, answer;
  std::string_view default_system = "''";
  SystemPlace place = SystemPlace::begins;
  SystemText writes = SystemText::filled;
  bool thinks = false;             ///< an answer without thoughts starts with empty ones
  bool alternates = false;         ///< questions and answers that do not alternate are an error
  bool later_systems = false;      ///< system messages may also follow the first message
  std::string_view header = "''";  ///< text before each answer, and the generation prompt
  std::string_view behind = "''";  ///< text after an answer, which is not learned
  std::string_view ending = {};    ///< text at the end of a conversation, learned with its last answer
};

inline constexpr std::string_view kNothing = "''", kBos = "bos_token or ''", kContent = "content",
                                  kWithEos = "content + eos_token", kParagraph = "content + '\\n\\n'";
inline constexpr std::string_view kImSystem = "'<|im_start|>system\\n' + content + '<|im_end|>\\n'";
inline constexpr std::string_view kPhiSystem = "'<|system|>\\n' + content + '<|end|>\\n'",
                                  kPhiQuestion = "'<|user|>\\n' + content + '<|end|>\\n<|assistant|>\\n'";

/// The chat format of another tool under its name there, such as "llamafactory_qwen" or "axolotl_deepseek_v2": a
/// template source, empty if there is none. Text only, like `find_named_template`.
std::string find_turn_format(std::string_view name);

}  // namespace qtrain
