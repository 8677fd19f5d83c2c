#include "text/template/turn_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "text/template/axolotl_formats.h"

namespace qtrain {
namespace {

constexpr std::string_view kImQuestion = "'<|im_start|>user\\n' + content + '<|im_end|>\\n<|im_start|>assistant\\n'";
constexpr std::string_view kAnswerWithEnd = "content + '<|im_end|>\\n'", kPhiAnswer = "content + '<|end|>\\n'";
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
});

/// The system text, which is written once, before the part that follows.
std::string system_of(const TurnFormat& f) {
  std::string text =
      fmt::format("{{%- set given = messages[0].role == 'system' %}}{{%- set default = {} %}}\n", f.default_system);
  text += f.writes == SystemText::filled
              ? "{%- set words = (messages[0].content if given else '') or default %}{%- set writes = words %}\n"
              : "{%- set words = messages[0].content if given else default %}{%- set writes = given or words %}\n";
  if (f.writes == SystemText::always) text += "{%- set writes = true %}\n";
  return text + fmt::format(
                    "{{%- set system = '' %}}{{%- if writes %}}{{%- set content = words %}}{{%- set system = {} "
                    "%}}{{%- endif %}}\n",
                    f.system);
}

std::string question_of(const TurnFormat& f) {
  const char* here =
      f.place == SystemPlace::in_last_message ? "loop.last" : "loop.first or (loop.index0 == 1 and given)";
  return fmt::format(
      "{{%- if message.role == 'user' %}}{{%- set content = (system if {} else '') + message.content %}}\n"
      "{{{{- {} }}}}\n",
      here, f.question);
}

std::string answer_of(const TurnFormat& f) {
  std::string text = "{%- elif message.role == 'assistant' %}\n";
  text += f.thinks ? "{%- set thought = '' if '<think>' in message.content or '</think>' in message.content else "
                     "'<think>\\n\\n</think>\\n\\n' %}{%- set content = thought + message.content %}\n"
                   : "{%- set content = message.content %}\n";
  const std::string ending =
      f.ending.empty() ? "" : fmt::format(" + ({} if loop.last and not add_generation_prompt else '')", f.ending);
  return text + fmt::format("{{{{- {} }}}}{{%- generation %}}{{{{ {}{} }}}}{{% endgeneration %}}{{{{- {} }}}}\n",
                            f.header, f.answer, ending, f.behind);
}

/// The text after the last message.
std::string end_of(const TurnFormat& f) {
  std::string text = fmt::format("{{%- if add_generation_prompt %}}{{{{- {} }}}}{{%- endif %}}", f.header);
  if (!f.ending.empty())
    text += fmt::format(
        "{{%- if not add_generation_prompt and messages[-1].role != 'assistant' %}}{{{{- {} }}}}"
        "{{%- endif %}}",
        f.ending);
  return text;
}

std::string source_of(const TurnFormat& f) {
  std::string text = fmt::format("{{{{- {} }}}}\n", f.prefix) + system_of(f);
  if (f.place == SystemPlace::begins) text += "{{- system }}{%- set system = '' %}\n";
  text += "{%- for message in messages %}\n";
  if (f.alternates)
    text +=
        "{%- set number = loop.index0 - (1 if given else 0) %}\n"
        "{%- if number >= 0 and (message.role == 'user') != (number % 2 == 0) %}"
        "{{- raise_exception('this chat format requires questions and answers to alternate') }}{%- endif %}\n";
  text += question_of(f) + answer_of(f);
  if (f.later_systems)
    text += fmt::format(
        "{{%- elif message.role == 'system' and not loop.first %}}{{%- set content = message.content %}}"
        "{{{{- {} }}}}\n",
        f.system);
  text += "{%- elif not (loop.first and message.role == 'system') %}\n";
  text += "{{- raise_exception('this chat format has no place for a ' + message.role + ' message here') }}\n";
  return text + "{%- endif %}\n{%- endfor %}" + end_of(f);
}

}  // namespace

std::string find_turn_format(std::string_view name) {
  const auto in = [&](std::span<const TurnFormat> formats) {
    const auto at = std::ranges::find(formats, name, &TurnFormat::name);
    return at == formats.end() ? std::string() : source_of(*at);
  };
  const std::string source = in(kFormats);
  return source.empty() ? in(axolotl_formats()) : source;
}

}  // namespace qtrain
