#include "convert/gguf/pre_tokenizers.h"

#include <algorithm>
#include <vector>

namespace qtrain {
namespace {

// Regular expressions as in the models' own tokenizer.json files.
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineEnd = R"([\r\n])";
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^~|]+)";
constexpr std::string_view kPunctuationAndTick = R"([\p{P}$+<=>^~|`]+)";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpacedLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacedPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kSpacedCasedLetters =  // alphabets with upper and lower case
    R"(\s?[)"
    R"(A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ)"
    R"(ὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ)"
    R"(ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃)"
    R"(]+)";
constexpr std::string_view kSpacedWidePunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kSpaceAtEnd = R"(\s+$)";
constexpr std::string_view kIdeographs = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kIdeographsAndKana = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kGpt2Splits[] = {kGpt2};
constexpr std::string_view kStarcoderSplits[] = {kDigit, kGpt2};
constexpr std::string_view kLlama3Splits[] = {kLlama3};
constexpr std::string_view kQwen2Splits[] = {kQwen2};
constexpr std::string_view kQwen35Splits[] = {kQwen35};
constexpr std::string_view kTekkenSplits[] = {kTekken};
constexpr std::string_view kGpt4oSplits[] = {kGpt4o};
constexpr std::string_view kDeepseekLlmSplits[] = {kLineEnd,    kSpacedCasedLetters, kSpacedWidePunctuation,
                                                   kSpaceAtEnd, kIdeographs,         kDigits};
constexpr std::string_view kDeepseekCoderSplits[] = {kLineEnd, kSpacedLetters, kSpacedPunctuation, kIdeographs, kDigit};
constexpr std::string_view kDeepseekV3Splits[] = {kUpToThreeDigits, kIdeographsAndKana, kDeepseekV3};
constexpr std::string_view kFalconSplits[] = {kPunctuationAndTick, kGpt2, kThreeDigits};
constexpr std::string_view kDefaultSplits[] = {kPunctuation, kGpt2, kDigits, kThreeDigits};

// Names as in llama.cpp. Of several names with the same rules, exports use the first.
constexpr GgufPreTokenizer kPreTokenizers[] = {
    {.name = "gpt-2", .splits = kGpt2Splits},
    {.name = "phi-2", .splits = kGpt2Splits},
    {.name = "jais", .splits = kGpt2Splits},
    {.name = "exaone4", .splits = kGpt2Splits},
    {.name = "mellum", .splits = kGpt2Splits},
    {.name = "trillion", .splits = kGpt2Splits},
    {.name = "granite-docling", .splits = kGpt2Splits},
    {.name = "olmo", .splits = kGpt2Splits, .nfc = true},
    {.name = "mpt", .splits = kGpt2Splits, .nfc = true},
    {.name = "smollm", .splits = kStarcoderSplits},
    {.name = "starcoder", .splits = kStarcoderSplits},
    {.name = "refact", .splits = kStarcoderSplits},
    {.name = "codeshell", .splits = kStarcoderSplits},
    {.name = "minerva-7b", .splits = kStarcoderSplits},
    {.name = "command-r", .splits = kStarcoderSplits, .nfc = true},
    {.name = "llama-bpe", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "falcon3", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "falcon-h1", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "pixtral", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "lfm2", .splits = kLlama3Splits, .ignore_merges = true, .add_bos = true},
    {.name = "glm4", .splits = kLlama3Splits, .ignore_merges = true},
    {.name = "dbrx", .splits = kLlama3Splits},
    {.name = "smaug-bpe", .splits = kLlama3Splits},
    {.name = "chatglm-bpe", .splits = kLlama3Splits},
    {.name = "qwen2", .splits = kQwen2Splits, .nfc = true},
    {.name = "deepseek-r1-qwen", .splits = kQwen2Splits, .nfc = true},
    {.name = "megrez", .splits = kQwen2Splits, .nfc = true},
    {.name = "stablelm2", .splits = kQwen2Splits},
    {.name = "qwen35", .splits = kQwen35Splits},
    {.name = "tekken", .splits = kTekkenSplits, .ignore_merges = true, .add_bos = true},
    {.name = "gpt-4o", .splits = kGpt4oSplits},
    {.name = "llama4", .splits = kGpt4oSplits},
    {.name = "deepseek-llm", .splits = kDeepseekLlmSplits},
    {.name = "deepseek-coder", .splits = kDeepseekCoderSplits},
    {.name = "deepseek-v3", .splits = kDeepseekV3Splits},
    {.name = "hunyuan-dense", .splits = kDeepseekV3Splits},
    {.name = "falcon", .splits = kFalconSplits},
    {.name = "default", .splits = kDefaultSplits},
};

Json byte_level(std::string_view last_split) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", last_split == kGpt2}};  // the step's built-in expression
}

Json split(std::string_view regex) {
  if (regex == kDigit || regex == kDigits) return {{"type", "Digits"}, {"individual_digits", regex == kDigit}};
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

/// Adds the expressions that are equivalent to a step of a tokenizer.json. Returns false if there are none.
bool add_splits(const Json& step, std::vector<std::string>& splits) {
  const auto type = step.value("type", "");
  if (type == "Sequence") {
    const auto& steps = step.at("pretokenizers");
    return std::all_of(steps.begin(), steps.end(), [&](const Json& inner) { return add_splits(inner, splits); });
  }
  if (type == "ByteLevel") {
    if (step.value("use_regex", true)) splits.emplace_back(kGpt2);
    return !step.value("add_prefix_space", true);
  }
  if (type == "Digits") splits.emplace_back(step.value("individual_digits", false) ? kDigit : kDigits);
  if (type == "Punctuation") splits.emplace_back(kPunctuationAndTick);
  if (type == "Digits" || type == "Punctuation") return type == "Digits" || step.value("behavior", "") == "Contiguous";
  if (type != "Split" || !step.at("pattern").contains("Regex")) return false;
  splits.push_back(step["pattern"]["Regex"]);
  // These expressions match every character, so removing what they do not match changes nothing.
  const auto behavior = step.at("behavior").get<std::string>();
  return behavior == "Isolated" || (behavior == "Removed" && step.value("invert", false));
}

}  // namespace

const GgufPreTokenizer* gguf_pre_tokenizer(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers), [&](auto& p) { return p.name == name; });
  return found == std::end(kPreTokenizers) ? nullptr : found;
}

Json pre_tokenizer_json(const GgufPreTokenizer& pre) {
  Json steps = Json::array();
  for (const auto& regex : pre.splits)
    if (&regex != &pre.splits.back() || regex != kGpt2) steps.push_back(split(regex));
  steps.push_back(byte_level(pre.splits.back()));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

const GgufPreTokenizer* gguf_pre_tokenizer_of(const PreTokenizerRules& rules) {
  std::vector<std::string> splits;
  if (!rules.pre_tokenizer.is_object() || !add_splits(rules.pre_tokenizer, splits)) return nullptr;
  const auto equal = [&](const GgufPreTokenizer& p) {
    return p.ignore_merges == rules.ignore_merges && p.nfc == rules.nfc &&
           std::equal(p.splits.begin(), p.splits.end(), splits.begin(), splits.end());
  };
  const auto* found = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers), equal);
  return found == std::end(kPreTokenizers) ? nullptr : found;
}

std::string gguf_pre_tokenizer_names() {
  std::string names;
  for (const auto& p : kPreTokenizers) names += (names.empty() ? "" : ", ") + std::string(p.name);
  return names;
}

}  // namespace qtrain
