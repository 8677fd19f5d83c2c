#include "text/template/training_forms.h"

#include <array>
#include <span>

#include "core/error.h"
#include "core/sha256.h"

namespace qtrain {
namespace {

/// Replaces the text from the first `from` after the previous edit through the next `to`; without `to`, `from` alone.
/// In `replacement`, $& stands for the replaced text.
struct Edit {
  std::string_view from, to, replacement;
};

constexpr std::string_view kLearned = "{%- generation %}$&{%- endgeneration %}";
constexpr std::string_view kBegin = "$&{%- generation %}";
constexpr std::string_view kEnd = "$&{%- endgeneration %}";
constexpr std::string_view kLearnedOfAssistant =
    "{%- if message['role'] == 'assistant' %}{%- generation %}$&{%- endgeneration %}{%- else %}$&{%- endif %}";
/// Marks the rest of a printed expression, from a + or ~ on.
constexpr std::string_view kRestLearned = " }}{%- generation %}{{- ''$&{%- endgeneration %}";
constexpr std::string_view kRestLearnedOfAssistant =
    " }}{%- if message['role'] == 'assistant' %}{%- generation %}{{- ''$&{%- endgeneration %}"
    "{%- else %}{{- ''$&{%- endif %}";

constexpr std::array kLlama3Edits = {
    Edit{"+ message['content']", "%}", "%}{% set said = ''$&"},
    Edit{"{{ content }}", "",
         "$&{%- if message['role'] == 'assistant' %}{%- generation %}{{- said }}{%- endgeneration %}"
         "{%- else %}{{- said }}{%- endif %}"}};

constexpr std::array kCohereEdits = {Edit{"<|CHATBOT_TOKEN|>'", "", "$&"}, Edit{" + content", "}}", kRestLearned}};

// A turn of any role other than these three has no end in TRL's rows.
constexpr std::array kCohere2Edits = {
    Edit{"{{ message['content'] }}<|END_RESPONSE|>", "",
         "{%- generation %}$&<|END_OF_TURN_TOKEN|>{%- endgeneration %}"},
    Edit{"<|END_OF_TURN_TOKEN|>{% endfor %}", "",
         "{% if role in ['user', 'system'] %}<|END_OF_TURN_TOKEN|>{% endif %}{% endfor %}"}};

constexpr std::array kGemmaEdits = {Edit{" + message['content']", "}}", kRestLearnedOfAssistant}};

constexpr std::array kGemma3Edits = {
    Edit{"{%- if message['content'] is string -%}", "{{ '<end_of_turn>\n' }}", kLearnedOfAssistant}};

constexpr std::array kLfm2Edits = {Edit{R"({{- content + "<|im_end|>\n" -}})", "", kLearnedOfAssistant}};

constexpr std::array kLfm2V2Edits = {
    Edit{R"({%- if message["role"] == "assistant" and message.get("tool_calls") -%})", "", kBegin},
    Edit{R"({{- "<|im_end|>\n" -}})", "", kEnd}, Edit{R"({{- content + "<|im_end|>\n" -}})", "", kLearnedOfAssistant}};

constexpr std::string_view kImEnd = R"({{- '<|im_end|>\n' }})";

// Without content and calls, the newline after the role is still written.
constexpr std::array kQwen25Edits = {
    Edit{R"( or (message.role == "assistant" and not message.tool_calls))", "", ""},
    Edit{"{{- '<|im_start|>' + message.role }}", "", kBegin},
    Edit{"{%- if message.content %}", "", "{%- if message.content or not message.tool_calls %}"},
    Edit{kImEnd, "", kEnd}};

constexpr std::array kQwen3Instruct2507Edits = {Edit{"{%- elif message.role == \"assistant\" %}", "", "$&"},
                                                Edit{" + content }}", "", " }}{%- generation %}{{- content }}"},
                                                Edit{kImEnd, "", kEnd}};

// The thinking block, which the stock template writes only in some turns.
constexpr std::string_view kQwenThinkEnd = "+ content }}\n        {%- endif %}";
constexpr std::string_view kQwen3Think =
    R"({{- '<|im_start|>' + message.role + '\n' }}{%- generation %})"
    R"({{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }})";
constexpr std::string_view kQwen35Think = R"({{- '<|im_start|>' + message.role + '\n' }}{%- generation %})"
                                          R"({{- '<think>\n' + reasoning_content + '\n</think>\n\n' + content }})";
constexpr std::string_view kAfterLastQuery = "{%- if loop.index0 > ns.last_query_index %}";
constexpr std::array kQwen3Edits = {Edit{kAfterLastQuery, kQwenThinkEnd, kQwen3Think}, Edit{kImEnd, "", kEnd}};
constexpr std::array kQwen35Edits = {Edit{kAfterLastQuery, kQwenThinkEnd, kQwen35Think}, Edit{kImEnd, "", kEnd}};
constexpr std::array kQwen36Edits = {Edit{"{%- if (preserve_thinking is defined", kQwenThinkEnd, kQwen35Think},
                                     Edit{kImEnd, "", kEnd}};
constexpr std::array kQwen38Edits = {Edit{"{%- if preserve_thinking is undefined", kQwenThinkEnd, kQwen35Think},
                                     Edit{kImEnd, "", kEnd}};

constexpr std::array kPhi3Edits = {Edit{"<|assistant|>\n'", "", "$&"},
                                   Edit{" + message['content']", "}}", kRestLearned},
                                   Edit{"{% else %}{{ eos_token }}", "",
                                        "{% elif messages[-1]['role'] == 'assistant' %}"
                                        "{%- generation %}{{- eos_token }}{%- endgeneration %}$&"}};

constexpr std::string_view kDeepseekOutputs = "{{'<｜tool▁outputs▁end｜>' + message",
                           kDeepseekSaid = "{{'<｜Assistant｜>' + content";
// Reasoning in the content is not removed.
constexpr std::array kDeepseekR1DistillEdits = {
    Edit{"message['content'] is none %}{%- set ns.is_tool = false -%}", "", kBegin}, Edit{"{%- endfor %}", "", kEnd},
    Edit{kDeepseekOutputs, "}}", kLearned},
    Edit{"{% set content = message['content'] %}", "{% endif %}", "{% set content = message['content'] %}"},
    Edit{kDeepseekSaid, "}}", kLearned}};
constexpr std::string_view kArguments = "tool['function']['arguments']";
constexpr std::array kDeepseekV3Edits = {Edit{"'tool_calls' in message %}{%- set ns.is_tool = false -%}", "", kBegin},
                                         Edit{kArguments, "", "$& | tojson"},
                                         Edit{kArguments, "", "$& | tojson"},
                                         Edit{kArguments, "", "$& | tojson"},
                                         Edit{"{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}", "", kEnd},
                                         Edit{kDeepseekOutputs, "}}", kLearned},
                                         Edit{kDeepseekSaid, "}}", kLearned}};

// The role token of the next message ends an answer, so that message then starts without it.
constexpr std::array kGlm4MoeEdits = {
    Edit{"{%- if m.role == 'user' -%}<|user|>", "",
         "{%- set opened = not loop.first and messages[loop.index0 - 1].role == 'assistant' %}"
         "{%- if m.role == 'user' -%}{{- '' if opened else '<|user|>' }}"},
    Edit{"{%- if loop.index0 > ns.last_user_index and reasoning_content -%}", "", "{%- generation %}$&"},
    Edit{"{% endfor %}\n{% endif %}", "",
         "$&{{- '<|observation|>' if m.tool_calls else '<|system|>' if not loop.last and "
         "messages[loop.index0 + 1].role == 'system' else '<|user|>' }}{%- endgeneration %}"},
    Edit{"{%- if loop.first or (messages", "{%- endif %}", ""},
    Edit{"<|observation|>{% for tr", "", "{{ '' if opened else '<|observation|>' }}{% for tr"},
    Edit{"<|system|>", "", "{{- '' if opened else '<|system|>' }}"}};

constexpr std::array kGptOssEdits = {Edit{"{%- if \"tool_calls\" in message %}", "", "{%- generation %}$&"},
                                     Edit{"{%- set last_tool_call.name = none %}\n        {%- endif %}", "", kEnd}};

constexpr std::array kNemotronEdits = {
    Edit{R"({{- '<|im_start|>assistant\n' }})", "", kBegin}, Edit{kImEnd, "", kEnd},
    Edit{" ~ (content | default", "}}", kRestLearned}, Edit{" ~ c ~", "}}", kRestLearned},
    Edit{R"(<|im_end|>\n' }})", "", R"(' }}{%- generation %}{{- '$&{%- endgeneration %})"}};

constexpr std::array kMuseEdits = {Edit{"{%- elif role == 'assistant' -%}", "", kBegin},
                                   Edit{"('<|eot|>' if end_turn else '<|eom|>') -}}\n        {%- endif -%}", "", kEnd}};

struct Family {
  std::string_view name, sha256;
  std::span<const Edit> edits;
};
constexpr auto kFamilies = std::to_array<Family>({
    {"llama3", "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", kLlama3Edits},
    {"cohere", "90c33aee14aa2a226127516d48ee9184c9b90745d4a04c484621ec2e82fb712c", kCohereEdits},
    {"cohere2", "2147c474f41b522b7296f74692b9f31e45f49a31465960576a9d321339c5915a", kCohere2Edits},
    {"gemma", "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6", kGemmaEdits},
    {"gemma3", "7de1c58e208eda46e9c7f86397df37ec49883aeece39fb961e0a6b24088dd3c4", kGemma3Edits},
    {"lfm2", "cef187400d62a59507aab3a642ea9a8d2a2ef263562bc3430560e116945273cf", kLfm2Edits},
    {"lfm2_v2", "5504d163d879bfb6fd4135b7fa3d56768b2e69dd718338f7b146750289f46ab0", kLfm2V2Edits},
    {"qwen2_5", "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f", kQwen25Edits},
    {"qwen3", "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", kQwen3Edits},
    {"qwen3_instruct_2507", "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",
     kQwen3Instruct2507Edits},
    {"qwen3_5_think", "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715", kQwen35Edits},
    {"qwen3_5_nothink", "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80", kQwen35Edits},
    {"qwen3_6", "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259", kQwen36Edits},
    {"qwen3_8", "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041", kQwen38Edits},
    {"phi3", "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa", kPhi3Edits},
    {"phi3_5", "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90", kPhi3Edits},
    {"deepseek_r1_distill", "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
     kDeepseekR1DistillEdits},
    {"deepseekv3", "563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64", kDeepseekV3Edits},
    {"glm4moe", "44f815868bf02fa458dd2f741a338046f4bf45f398eb6d067766726b9d96cce3", kGlm4MoeEdits},
    {"gptoss", "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146", kGptOssEdits},
    {"nemotron_3_nano", "ab7813c3abdd9cb655905a410728b26c7884eca45ddfab8d9f931553485a7862", kNemotronEdits},
    {"nemotron_3_super", "575fb74f54ed264df9047d0ecce3c98938aae953fb4f50356675706264cbb68a", kNemotronEdits},
    {"nemotron_3_ultra", "82753bef5cedc4932c1ed509b5c9a12be680fd86d1adb65bc3f7398d11c8eebc", kNemotronEdits},
    {"nemotron_3_5_lightning", "58933db77d3099b4f78c55a38347a72e1ea05b97d6bd8f38775303dc0194e0a9", kNemotronEdits},
    {"muse_glimmer", "cfc67e5f349f37690dfd31ed1f18bc4442a9dd32fe39a648f993cb4eb3cae678", kMuseEdits},
});

std::string with_piece(std::string_view replacement, std::string_view piece) {
  std::string text;
  for (std::size_t at = 0; at < replacement.size(); ++at) {
    if (replacement.substr(at, 2) == "$&") {
      text += piece;
      ++at;
    } else {
      text += replacement[at];
    }
  }
  return text;
}

/// The text after all edits. It must be the stock text that the edits are made for, so that each finds its place.
std::string edited(std::string_view stock, const Family& family) {
  std::string text;
  std::size_t done = 0;
  for (const Edit& edit : family.edits) {
    const std::size_t begin = stock.find(edit.from, done);
    const std::size_t end = begin == stock.npos ? begin : stock.find(edit.to, begin + edit.from.size());
    if (end == stock.npos)
      fail(ErrorKind::internal,
           {.cause = "an edit of a chat template does not apply", .place = std::string(family.name)});
    text += stock.substr(done, begin - done);
    done = end + edit.to.size();
    text += with_piece(edit.replacement, stock.substr(begin, done - begin));
  }
  return text.append(stock.substr(done));
}

}  // namespace

std::optional<TrainingForm> training_form(std::string_view stock) {
  const std::string hash = sha256_of(stock);
  for (const Family& family : kFamilies)
    if (family.sha256 == hash) return TrainingForm{.family = family.name, .source = edited(stock, family)};
  return {};
}

std::vector<std::string_view> training_form_families() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

}  // namespace qtrain
