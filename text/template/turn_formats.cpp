#include "text/template/turn_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace qtrain {
namespace {

/// Where the system text stands.
enum class SystemPlace : std::uint8_t { begins, in_first_question };

/// A format as LLaMA-Factory and axolotl describe theirs: what a question and an answer become. Each part is an
/// expression of a template over `content`; a question ends with the words behind which the assistant speaks.
struct TurnFormat {
  std::string_view name, prefix, system, question, answer;
  std::string_view default_system = "''";
  SystemPlace place = SystemPlace::begins;
  bool thinks = false;             ///< an answer without thoughts begins with empty ones
  std::string_view behind = "''";  ///< what follows an answer and is not learned
};

constexpr std::string_view kNothing = "''", kBos = "bos_token or ''", kContent = "content",
                           kWithEos = "content + eos_token", kAnswerWithEnd = "content + '<|im_end|>\\n'",
                           kParagraph = "content + '\\n\\n'";
constexpr std::string_view kImSystem = "'<|im_start|>system\\n' + content + '<|im_end|>\\n'",
                           kImQuestion = "'<|im_start|>user\\n' + content + '<|im_end|>\\n<|im_start|>assistant\\n'";
constexpr std::string_view kPhiSystem = "'<|system|>\\n' + content + '<|end|>\\n'",
                           kPhiQuestion = "'<|user|>\\n' + content + '<|end|>\\n<|assistant|>\\n'",
                           kPhiAnswer = "content + '<|end|>\\n'";
constexpr std::string_view kGraniteSystem = "'<|start_of_role|>system<|end_of_role|>' + content + '<|end_of_text|>\\n'";
constexpr std::string_view kGraniteQuestion =
    "'<|start_of_role|>user<|end_of_role|>' + content + '<|end_of_text|>\\n<|start_of_role|>assistant<|end_of_role|>'";
constexpr std::string_view kInst = "'[INST]' + content + '[/INST]'";
constexpr std::string_view kDeepseekQuestion = "'<｜User｜>' + content + '<｜Assistant｜>'";

constexpr TurnFormat im_format(std::string_view name, std::string_view default_system = kNothing,
                               std::string_view prefix = kNothing) {
  return {.name = name,
          .prefix = prefix,
          .system = kImSystem,
          .question = kImQuestion,
          .answer = kAnswerWithEnd,
          .default_system = default_system};
}

constexpr TurnFormat thinking(TurnFormat format) {
  format.thinks = true;
  return format;
}

constexpr auto kFormats = std::to_array<TurnFormat>({
    {.name = "llamafactory_alpaca",
     .prefix = kNothing,
     .system = kContent,
     .question = "'### Instruction:\\n' + content + '\\n\\n### Response:\\n'",
     .answer = "content + eos_token + '\\n\\n'",
     .default_system = "'Below is an instruction that describes a task. Write a response that appropriately completes "
                       "the request.\\n\\n'"},
    im_format("llamafactory_cpm4", kNothing, kBos),
    {.name = "llamafactory_deepseek",
     .prefix = kBos,
     .system = kParagraph,
     .question = "'User: ' + content + '\\n\\nAssistant:'",
     .answer = kWithEos},
    {.name = "llamafactory_deepseek3",
     .prefix = kBos,
     .system = kContent,
     .question = kDeepseekQuestion,
     .answer = kWithEos},
    thinking({.name = "llamafactory_deepseekr1",
              .prefix = kBos,
              .system = kContent,
              .question = kDeepseekQuestion,
              .answer = kWithEos}),
    {.name = "llamafactory_default",
     .prefix = kNothing,
     .system = "'System: ' + content + eos_token + '\\n'",
     .question = "'Human: ' + content + eos_token + '\\nAssistant:'",
     .answer = "content + eos_token + '\\n'"},
    {.name = "llamafactory_exaone",
     .prefix = kNothing,
     .system = "'[|system|]' + content + '[|endofturn|]\\n'",
     .question = "'[|user|]' + content + '\\n[|assistant|]'",
     .answer = "content + eos_token + '\\n'"},
    im_format("llamafactory_falcon_h1", kNothing, kBos),
    {.name = "llamafactory_granite3",
     .prefix = kNothing,
     .system = kGraniteSystem,
     .question = kGraniteQuestion,
     .answer = "content + '<|end_of_text|>\\n'"},
    {.name = "llamafactory_granite4",
     .prefix = kNothing,
     .system = kGraniteSystem,
     .question = kGraniteQuestion,
     .answer = "content + '<|end_of_text|>\\n'",
     .default_system = "'You are Granite, developed by IBM. You are a helpful AI assistant.'"},
    im_format("llamafactory_intern_s1", kNothing, kBos),
    im_format("llamafactory_lfm2", "'You are a helpful AI assistant.'"),
    {.name = "llamafactory_llama2",
     .prefix = kNothing,
     .system = "'<<SYS>>\\n' + content + '\\n<</SYS>>\\n\\n'",
     .question = "(bos_token or '') + '[INST] ' + content + ' [/INST]'",
     .answer = kWithEos,
     .place = SystemPlace::in_first_question},
    {.name = "llamafactory_llama4",
     .prefix = kBos,
     .system = "'<|header_start|>system<|header_end|>\\n\\n' + content + '<|eot|>'",
     .question = "'<|header_start|>user<|header_end|>\\n\\n' + content + "
                 "'<|eot|><|header_start|>assistant<|header_end|>\\n\\n'",
     .answer = "content + '<|eot|>'"},
    thinking(im_format("llamafactory_mimo", "'You are a helpful assistant.'")),
    {.name = "llamafactory_ministral",
     .prefix = kBos,
     .system = kParagraph,
     .question = kInst,
     .answer = kWithEos,
     .place = SystemPlace::in_first_question},
    {.name = "llamafactory_mistral",
     .prefix = kBos,
     .system = kParagraph,
     .question = "'[INST] ' + content + '[/INST]'",
     .answer = "' ' + content + eos_token",
     .place = SystemPlace::in_first_question},
    {.name = "llamafactory_mistral_small",
     .prefix = kBos,
     .system = "'[SYSTEM_PROMPT]' + content + '[/SYSTEM_PROMPT]'",
     .question = kInst,
     .answer = kWithEos},
    {.name = "llamafactory_moonlight",
     .prefix = kNothing,
     .system = "'<|im_system|>system<|im_middle|>' + content + '<|im_end|>'",
     .question = "'<|im_user|>user<|im_middle|>' + content + '<|im_end|><|im_assistant|>assistant<|im_middle|>'",
     .answer = "content + '<|im_end|>'",
     .default_system = "'You are a helpful assistant provided by Moonshot-AI.'"},
    {.name = "llamafactory_olmo",
     .prefix = "eos_token",
     .system = kContent,
     .question = "'<|user|>\\n' + content + '<|assistant|>\\n'",
     .answer = kWithEos},
    {.name = "llamafactory_openchat",
     .prefix = kBos,
     .system = kContent,
     .question = "'GPT4 Correct User: ' + content + eos_token + 'GPT4 Correct Assistant:'",
     .answer = kWithEos},
    im_format("llamafactory_opencoder", "'You are OpenCoder, created by OpenCoder Team.'"),
    {.name = "llamafactory_phi",
     .prefix = kNothing,
     .system = kPhiSystem,
     .question = kPhiQuestion,
     .answer = kPhiAnswer},
    {.name = "llamafactory_phi4_mini",
     .prefix = kNothing,
     .system = "'<|system|>' + content + '<|end|>'",
     .question = "'<|user|>' + content + '<|end|><|assistant|>'",
     .answer = "content + '<|end|>'"},
    im_format("llamafactory_qwen2_vl", "'You are a helpful assistant.'"),
    im_format("llamafactory_qwen", "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'"),
    thinking(im_format("llamafactory_qwen3")),
    im_format("llamafactory_qwen3_nothink"),
    im_format("llamafactory_smollm"),
    im_format("llamafactory_smollm2", "'You are a helpful AI assistant named SmolLM, trained by Hugging Face.'"),
    {.name = "llamafactory_starchat",
     .prefix = kNothing,
     .system = kPhiSystem,
     .question = "'<|user|>\\n' + content + '<|end|>\\n<|assistant|>'",
     .answer = kPhiAnswer},
    {.name = "llamafactory_vicuna",
     .prefix = kNothing,
     .system = kContent,
     .question = "'USER: ' + content + ' ASSISTANT:'",
     .answer = kWithEos,
     .default_system = "'A chat between a curious user and an artificial intelligence assistant. The assistant gives "
                       "helpful, detailed, and polite answers to the user\\'s questions.'"},
    im_format("llamafactory_yi"),
    {.name = "llamafactory_zephyr",
     .prefix = kNothing,
     .system = "'<|system|>\\n' + content + eos_token",
     .question = "'<|user|>\\n' + content + eos_token + '<|assistant|>\\n'",
     .answer = kWithEos,
     .default_system = "'You are Zephyr, a helpful assistant.'"},
    {.name = "axolotl_deepseek_v2",
     .prefix = kBos,
     .system = kParagraph,
     .question = kDeepseekQuestion,
     .answer = kWithEos},
    {.name = "axolotl_mistral_v1",
     .prefix = kBos,
     .system = kParagraph,
     .question = "' [INST] ' + content + ' [/INST]'",
     .answer = "' ' + content + eos_token",
     .place = SystemPlace::in_first_question},
    {.name = "axolotl_falcon_h1",
     .prefix = kBos,
     .system = kImSystem,
     .question = kImQuestion,
     .answer = "content + '<|im_end|>'",
     .behind = "'\\n'"},
    {.name = "axolotl_phi_3",
     .prefix = kBos,
     .system = kPhiSystem,
     .question = kPhiQuestion,
     .answer = "content + '<|end|>'",
     .behind = "'\\n'"},
    {.name = "axolotl_phi_35",
     .prefix = kNothing,
     .system = kPhiSystem,
     .question = kPhiQuestion,
     .answer = "content + '<|end|>'",
     .behind = "'\\n'"},
    {.name = "axolotl_qwen_25",
     .prefix = kNothing,
     .system = kImSystem,
     .question = kImQuestion,
     .answer = "content + '<|im_end|>'",
     .default_system = "'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.'",
     .behind = "'\\n'"},
});

std::string source_of(const TurnFormat& f) {
  const bool begins = f.place == SystemPlace::begins;
  const std::string set_system = fmt::format("{{%- set content = words %}}{{%- set system = {} %}}", f.system);
  std::string text = fmt::format("{{{{- {} }}}}\n", f.prefix);
  text += fmt::format("{{%- set words = (messages[0].content if messages[0].role == 'system' else '') or {} %}}\n",
                      f.default_system);
  text += fmt::format("{{%- set system = '' %}}{{%- if words %}}{}{{%- endif %}}\n", set_system);
  if (begins) text += "{{- system }}{%- set system = '' %}\n";
  text += "{%- for message in messages %}\n";
  text += "{%- if message.role == 'user' %}\n";
  text += "{%- set first = loop.first or (loop.index0 == 1 and messages[0].role == 'system') %}\n";
  text += "{%- set content = (system if first else '') + message.content %}\n";
  text += fmt::format("{{{{- {} }}}}\n", f.question);
  text += "{%- elif message.role == 'assistant' %}\n";
  text += f.thinks ? "{%- set thought = '' if '<think>' in message.content or '</think>' in message.content else "
                     "'<think>\\n\\n</think>\\n\\n' %}{%- set content = thought + message.content %}\n"
                   : "{%- set content = message.content %}\n";
  text += fmt::format("{{%- generation %}}{{{{ {} }}}}{{% endgeneration %}}{{{{- {} }}}}\n", f.answer, f.behind);
  text += "{%- elif not (loop.first and message.role == 'system') %}\n";
  text += "{{- raise_exception('this chat format has no place for a ' + message.role + ' message here') }}\n";
  return text + "{%- endif %}\n{%- endfor %}";
}

}  // namespace

std::string find_turn_format(std::string_view name) {
  const auto at = std::ranges::find(kFormats, name, &TurnFormat::name);
  return at == kFormats.end() ? std::string() : source_of(*at);
}

}  // namespace qtrain
