#include "text/template/axolotl_formats.h"

#include <array>

namespace qtrain {
namespace {

constexpr std::string_view kMistralAnswer = "' ' + content + eos_token", kImAnswer = "content + '<|im_end|>'",
                           kPhiTurn = "content + '<|end|>'", kLine = "'\\n'";

/// A format with <|im_start|> lines, like qwen_25.
constexpr TurnFormat im_lines(std::string_view name, std::string_view default_system = kNothing,
                              std::string_view prefix = kNothing) {
  return {.name = name,
          .prefix = prefix,
          .system = kImSystem,
          .question = "'<|im_start|>user\\n' + content + '<|im_end|>\\n'",
          .answer = kImAnswer,
          .default_system = default_system,
          .writes = SystemText::given,
          .header = "'<|im_start|>assistant\\n'",
          .behind = kLine};
}

constexpr TurnFormat with_later_systems(TurnFormat format) {
  format.later_systems = true;
  return format;
}

constexpr auto kAxolotlFormats = std::to_array<TurnFormat>({
    {.name = "axolotl_deepseek_v2",
     .prefix = kBos,
     .system = kParagraph,
     .question = "'<｜User｜>' + content",
     .answer = kWithEos,
     .writes = SystemText::given,
     .later_systems = true,
     .header = "'<｜Assistant｜>'"},
    {.name = "axolotl_deepseek_v3",
     .prefix = kBos,
     .system = kContent,
     .question = "'<｜User｜>' + content",
     .answer = "content.split('</think>')[-1] + '<｜end▁of▁sentence｜>'",
     .writes = SystemText::given,
     .header = "'<｜Assistant｜>'"},
    {.name = "axolotl_exaone",
     .prefix = kNothing,
     .system = "'[|system|]' + content + '[|endofturn|]\\n'",
     .question = "'[|user|]' + content + '\\n'",
     .answer = "content + '[|endofturn|]'",
     .writes = SystemText::always,
     .later_systems = true,
     .header = "'[|assistant|]'",
     .behind = kLine},
    im_lines("axolotl_falcon_h1", kNothing, kBos),
    {.name = "axolotl_llama4",
     .prefix = kBos,
     .system = "'<|header_start|>system<|header_end|>\\n\\n' + content | trim + '<|eot|>'",
     .question = "'<|header_start|>user<|header_end|>\\n\\n' + content + '<|eot|>'",
     .answer = "content + '<|eot|>'",
     .writes = SystemText::given,
     .header = "'<|header_start|>assistant<|header_end|>\\n\\n'"},
    {.name = "axolotl_metharme",
     .prefix = kBos,
     .system = "'<|system|>' + content",
     .question = "'<|user|>' + content | trim",
     .answer = "content | trim",
     .default_system = "'Enter RP mode. You shall reply to the user while staying in character. Your responses must "
                       "be detailed, creative, immersive, and drive the scenario forward.'",
     .writes = SystemText::given,
     .header = "'<|model|>'",
     .ending = "eos_token"},
    {.name = "axolotl_mistral_v1",
     .prefix = kBos,
     .system = kParagraph,
     .question = "' [INST] ' + content + ' [/INST]'",
     .answer = kMistralAnswer,
     .place = SystemPlace::in_first_question,
     .writes = SystemText::given,
     .alternates = true},
    // The system text goes into the last message if that is a question, so rows that end with an answer have no system
    // text.
    {.name = "axolotl_mistral_v2v3",
     .prefix = kBos,
     .system = kParagraph,
     .question = "'[INST] ' + content + '[/INST]'",
     .answer = "' ' + content | trim + eos_token",
     .place = SystemPlace::in_last_message,
     .writes = SystemText::given,
     .alternates = true},
    {.name = "axolotl_mistral_v3_tekken",
     .prefix = kBos,
     .system = kParagraph,
     .question = "'[INST]' + content + '[/INST]'",
     .answer = kWithEos,
     .place = SystemPlace::in_last_message,
     .writes = SystemText::given,
     .alternates = true},
    {.name = "axolotl_mistral_v7_tekken",
     .prefix = kBos,
     .system = "'[SYSTEM_PROMPT]' + content + '[/SYSTEM_PROMPT]'",
     .question = "'[INST]' + content + '[/INST]'",
     .answer = kWithEos,
     .default_system =
         "'You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French startup "
         "headquartered in Paris.\\nYour knowledge base was last updated on 2023-10-01. The current date is ' + "
         "strftime_now('%Y-%m-%d') + '.\\n\\nWhen you\\'re not sure about some information, you say that you don\\'t "
         "have the information and don\\'t make up anything.\\nIf the user\\'s question is not clear, ambiguous, or "
         "does not provide enough context for you to accurately answer the question, you do not try to answer it "
         "right away and you rather ask the user to clarify their request (e.g. \"What are some good restaurants "
         "around me?\" => \"Where are you?\" or \"When is the next flight to Tokyo\" => \"Where do you travel "
         "from?\")'",
     .writes = SystemText::given,
     .later_systems = true},
    im_lines("axolotl_nemotron_h"),
    {.name = "axolotl_phi_3",
     .prefix = kBos,
     .system = kPhiSystem,
     .question = kPhiQuestion,
     .answer = kPhiTurn,
     .writes = SystemText::given,
     .later_systems = true,
     .behind = kLine},
    {.name = "axolotl_phi_35",
     .prefix = kNothing,
     .system = kPhiSystem,
     .question = "'<|user|>\\n' + content + '<|end|>\\n'",
     .answer = kPhiTurn,
     .later_systems = true,
     .header = "'<|assistant|>\\n'",
     .behind = kLine},
    {.name = "axolotl_phi_4",
     .prefix = kNothing,
     .system = "'<|im_start|>system<|im_sep|>' + content + '<|im_end|>'",
     .question = "'<|im_start|>user<|im_sep|>' + content + '<|im_end|>'",
     .answer = kImAnswer,
     .default_system =
         "'You are Phi, a language model trained by Microsoft to help users. Your role as an assistant involves "
         "thoroughly exploring questions through a systematic thinking process before providing the final precise "
         "and accurate solutions. This requires engaging in a comprehensive cycle of analysis, summarizing, "
         "exploration, reassessment, reflection, backtracing, and iteration to develop well-considered thinking "
         "process. Please structure your response into two main sections: Thought and Solution using the specified "
         "format: <think> {Thought section} </think> {Solution section}. In the Thought section, detail your "
         "reasoning process in steps. Each step should include detailed considerations such as analysing questions, "
         "summarizing relevant findings, brainstorming new ideas, verifying the accuracy of the current steps, "
         "refining any errors, and revisiting previous steps. In the Solution section, based on various attempts, "
         "explorations, and reflections from the Thought section, systematically present the final solution that you "
         "deem correct. The Solution section should be logical, accurate, and concise and detail necessary steps "
         "needed to reach the conclusion. Now, try to solve the following question through the above guidelines:'",
     .writes = SystemText::given,
     .header = "'<|im_start|>assistant<|im_sep|>'"},
    with_later_systems(im_lines("axolotl_qwen2_vl", "'You are a helpful assistant.'")),
    with_later_systems(
        im_lines("axolotl_qwen_25", "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'")),
});

}  // namespace

std::span<const TurnFormat> axolotl_formats() {
  return kAxolotlFormats;
}

}  // namespace qtrain
