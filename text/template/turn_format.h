#pragma once
#include <cstdint>
#include <string_view>

namespace qtrain {

/// Where the system text stands.
enum class SystemPlace : std::uint8_t { begins, in_first_question, in_last_message };

/// Which system text is written: one that says something, one that is there, or one even if there is none.
enum class SystemText : std::uint8_t { filled, given, always };

/// A format as LLaMA-Factory and axolotl describe theirs: what a question and an answer become. Each part is an
/// expression of a template over `content`; behind a question or as `header` stand the words behind which the assistant
/// speaks.
struct TurnFormat {
  std::string_view name, prefix, system, question, answer;
  std::string_view default_system = "''";
  SystemPlace place = SystemPlace::begins;
  SystemText writes = SystemText::filled;
  bool thinks = false;             ///< an answer without thoughts begins with empty ones
  bool alternates = false;         ///< another order than question, answer, question is an error
  bool later_systems = false;      ///< system messages may also stand behind the first message
  std::string_view header = "''";  ///< before each answer, and where one is wanted
  std::string_view behind = "''";  ///< what follows an answer and is not learned
  std::string_view ending = {};    ///< what ends a conversation, learned with its last answer
};

inline constexpr std::string_view kNothing = "''", kBos = "bos_token or ''", kContent = "content",
                                  kWithEos = "content + eos_token", kParagraph = "content + '\\n\\n'";
inline constexpr std::string_view kImSystem = "'<|im_start|>system\\n' + content + '<|im_end|>\\n'";
inline constexpr std::string_view kPhiSystem = "'<|system|>\\n' + content + '<|end|>\\n'",
                                  kPhiQuestion = "'<|user|>\\n' + content + '<|end|>\\n<|assistant|>\\n'";

}  // namespace qtrain
