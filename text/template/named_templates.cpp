#include "text/template/named_templates.h"

#include <array>
#include <cctype>
#include <string>

#include "text/template/turn_formats.h"

namespace qtrain {
namespace {

struct NamedTemplate {
  std::string_view name, source;
};

/// Prefix of each template: parts that a format cannot express must not be dropped silently.
constexpr std::string_view kTextOnly = R"jinja(
{%- if tools %}{{ raise_exception('this chat format has no tools: use the template of the model') }}{% endif %}
{%- for message in messages if message.tool_calls or message.content is not string %}
  {{- raise_exception('this chat format has texts only: a ' + message.role + ' message has none, or calls tools') }}
{%- endfor %})jinja";

constexpr std::string_view kChatml = R"jinja(
{%- for message in messages %}
  {{- '<|im_start|>' + message.role + '\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
  {%- else %}
    {{- message.content + '<|im_end|>' }}
  {%- endif %}
  {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})jinja";

constexpr std::string_view kLlama3 = R"jinja(
{{- bos_token }}
{%- for message in messages %}
  {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content | trim + '<|eot_id|>' }}{% endgeneration %}
  {%- else %}
    {{- message.content | trim + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})jinja";

// The system text comes before the last question, as in Mistral-7B-Instruct-v0.3.
constexpr std::string_view kMistral = R"jinja(
{{- bos_token }}
{%- set system = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- '[INST] ' + (system if loop.last or loop.index0 == messages | length - 2 else '') + message.content + '[/INST]' }}
  {%- elif message.role == 'assistant' %}
    {%- generation %}{{ ' ' + message.content | trim + eos_token }}{% endgeneration %}
  {%- elif not loop.first %}
    {{- raise_exception('a ' + message.role + ' message may only be the first one') }}
  {%- endif %}
{%- endfor %})jinja";

constexpr std::string_view kGemma = R"jinja(
{{- bos_token }}
{%- set system = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}
{%- for message in messages if message.role != 'system' %}
  {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content | trim + '<end_of_turn>' }}{% endgeneration %}
  {%- else %}
    {{- (system if loop.first else '') + message.content | trim + '<end_of_turn>' }}
  {%- endif %}
  {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})jinja";

constexpr std::string_view kPhi3 = R"jinja(
{%- for message in messages %}
  {{- '<|' + message.role + '|>\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content + '<|end|>' }}{% endgeneration %}
  {%- else %}
    {{- message.content + '<|end|>' }}
  {%- endif %}
  {{- '\n' }}
{%- endfor %}
{{- '<|assistant|>\n' if add_generation_prompt else eos_token }})jinja";

constexpr std::string_view kPhi4 = R"jinja(
{%- for message in messages %}
  {{- '<|im_start|>' + message.role + '<|im_sep|>' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
  {%- else %}
    {{- message.content + '<|im_end|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %})jinja";

constexpr std::string_view kZephyr = R"jinja(
{%- for message in messages %}
  {{- '<|' + message.role + '|>\n' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content + eos_token }}{% endgeneration %}
  {%- else %}
    {{- message.content + eos_token }}
  {%- endif %}
  {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})jinja";

constexpr std::string_view kDeepseek = R"jinja(
{{- bos_token }}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- '<｜User｜>' + message.content }}
  {%- elif message.role == 'assistant' %}
    {{- '<｜Assistant｜>' }}
    {%- generation %}{{ message.content + '<｜end▁of▁sentence｜>' }}{% endgeneration %}
  {%- else %}
    {{- message.content }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %})jinja";

constexpr std::string_view kCommandR = R"jinja(
{{- bos_token }}
{%- set names = {'user': 'USER', 'assistant': 'CHATBOT', 'system': 'SYSTEM'} %}
{%- for message in messages %}
  {{- '<|START_OF_TURN_TOKEN|><|' + names[message.role] + '_TOKEN|>' }}
  {%- if message.role == 'assistant' %}
    {%- generation %}{{ message.content | trim + '<|END_OF_TURN_TOKEN|>' }}{% endgeneration %}
  {%- else %}
    {{- (message.content if message.role == 'system' else message.content | trim) + '<|END_OF_TURN_TOKEN|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %})jinja";

constexpr std::string_view kAlpaca = R"jinja(
{{- bos_token }}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- '### Instruction:\n' + message.content + ('\n\n' if add_generation_prompt or not loop.last else '') }}
  {%- elif message.role == 'assistant' %}
    {{- '### Response:\n' }}
    {%- generation %}{{ message.content + eos_token }}{% endgeneration %}
    {{- '' if loop.last else '\n\n' }}
  {%- else %}
    {{- message.content + '\n\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '### Response:\n' }}{% endif %})jinja";

constexpr std::string_view kVicuna = R"jinja(
{{- bos_token }}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {{- 'USER: ' + message.content + ' ' }}
  {%- elif message.role == 'assistant' %}
    {{- 'ASSISTANT:' }}
    {%- generation %}{{ ' ' + message.content + eos_token }}{% endgeneration %}
  {%- else %}
    {{- message.content + ' ' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})jinja";

// Renders like axolotl's qwen3: thoughts are kept in the last answer, and in other answers after the last question that
// have some.
constexpr std::string_view kAxolotlQwen3 = R"jinja(
{%- set last = namespace(question=messages | length - 1) %}
{%- for message in messages %}
  {%- set is_result = message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>') %}
  {%- if message.role == 'user' and not is_result %}{%- set last.question = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.role == 'assistant' %}
    {%- set content = message.content %}
    {%- set thoughts = message.reasoning_content if message.reasoning_content is string else '' %}
    {%- if message.reasoning_content is not string and '</think>' in content %}
      {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {%- if loop.index0 > last.question and (loop.last or thoughts) %}
      {%- set content = '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\n' }}
    {%- generation %}{{ content + '<|im_end|>' }}{% endgeneration %}
    {{- '\n' }}
  {%- elif message.role in ['user', 'system'] %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
  {%- else %}
    {{- raise_exception('this chat format has no place for a ' + message.role + ' message here') }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n<think>\n\n' + ('</think>\n\n' if enable_thinking is defined and enable_thinking is false else '') }}
{%- endif %})jinja";

constexpr auto kTemplates = std::to_array<NamedTemplate>({{"chatml", kChatml},
                                                          {"llama3", kLlama3},
                                                          {"mistral", kMistral},
                                                          {"gemma", kGemma},
                                                          {"phi3", kPhi3},
                                                          {"phi4", kPhi4},
                                                          {"zephyr", kZephyr},
                                                          {"deepseek", kDeepseek},
                                                          {"command_r", kCommandR},
                                                          {"alpaca", kAlpaca},
                                                          {"vicuna", kVicuna}});

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

}  // namespace

std::vector<std::string_view> template_names() {
  std::vector<std::string_view> names;
  for (const NamedTemplate& t : kTemplates) names.push_back(t.name);
  return names;
}

std::string find_named_template(std::string_view name) {
  const std::string wanted = plain_name(name);
  for (const NamedTemplate& t : kTemplates)
    if (plain_name(t.name) == wanted) return std::string(kTextOnly).append(t.source);
  const std::string other = name == "axolotl_qwen3" ? std::string(kAxolotlQwen3) : find_turn_format(name);
  return other.empty() ? other : std::string(kTextOnly).append(other);
}

}  // namespace qtrain
