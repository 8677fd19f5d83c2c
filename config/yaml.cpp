#include "config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "core/formats/key_lines.h"
#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

// A config is a few KB; the nodes of a malicious text can take thousands of times its size.
constexpr std::size_t kMaxYamlBytes = 1u << 18, kMaxYamlDepth = 64;
constexpr std::size_t kMaxExpandedBytes = 1u << 22;  // of all keys and values, aliases expanded

void append(Json& list, Json made) {
  if (!made.is_array()) return list.push_back(std::move(made));
  for (Json& one : made) list.push_back(std::move(one));
}

[[noreturn]] void refuse(std::string_view name, const YAML::Mark& at, std::string cause, std::string remedy = {}) {
  const std::string place = at.line < 0 ? std::string(name) : fmt::format("{}:{}", name, at.line + 1);
  fail(ErrorKind::usage, {.cause = std::move(cause), .place = place, .remedy = std::move(remedy)});
}

/// Converts the nodes of a document to JSON. Aliases are expanded, so all values are counted.
class YamlReader {
 public:
  explicit YamlReader(std::string_view name) : document_{.name = std::string(name)} {}

  ConfigDocument read(const YAML::Node& root) {
    document_.value = value(root, "");
    return std::move(document_);
  }

 private:
  [[noreturn]] void refuse_at(const YAML::Node& node, std::string cause, std::string remedy = {}) const {
    refuse(document_.name, node.Mark(), std::move(cause), std::move(remedy));
  }

  /// `path` ends with a dot unless it is empty.
  Json value(const YAML::Node& node, const std::string& path) {
    if (++values_ > kMaxConfigValues)
      refuse_at(node, fmt::format("more than {} values, aliases counted", kMaxConfigValues));
    if (node.IsNull()) return nullptr;
    if (node.IsScalar()) {
      count_text(node);
      return scalar(node);
    }
    require_tag(node, {"", "?", "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}, "lists and mappings");
    if (std::ranges::any_of(open_, [&](const YAML::Node& around) { return around.is(node); }))
      refuse_at(node, "an alias that contains itself");
    if (open_.size() >= kMaxYamlDepth) refuse_at(node, fmt::format("nested deeper than {} levels", kMaxYamlDepth));
    open_.push_back(node);
    Json made = node.IsMap() ? mapping(node, path) : Json::array();
    if (node.IsSequence())
      for (const YAML::Node& member : node) made.push_back(value(member, path + "[]."));
    open_.pop_back();
    return made;
  }

  void count_text(const YAML::Node& node) {
    text_bytes_ += node.Scalar().size();
    if (text_bytes_ > kMaxExpandedBytes)
      refuse_at(node, fmt::format("more than {} bytes of keys and values, aliases counted", kMaxExpandedBytes));
  }

  Json scalar(const YAML::Node& node) const {
    const std::string &tag = node.Tag(), &text = node.Scalar();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return text;
    require_tag(node, {"?", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}, "values");
    return yaml_plain_value(text);
  }

  void require_tag(const YAML::Node& node, std::initializer_list<std::string_view> known, const char* what) const {
    if (std::ranges::find(known, node.Tag()) == known.end())
      refuse_at(node, fmt::format("unknown tag {}", node.Tag()), fmt::format("write plain {}", what));
  }

  Json mapping(const YAML::Node& node, const std::string& path) {
    Json out = Json::object(), merged = Json::array();
    // Growing the object would copy it, and a copy that runs out of memory ends the process.
    out.get_ref<Json::object_t&>().reserve(node.size());
    for (const auto& pair : node) {
      const YAML::Node &key = pair.first, &member = pair.second;
      if (key.IsNull()) refuse_at(key, "a key is empty");
      if (!key.IsScalar()) refuse_at(key, "a key must be a plain or quoted word");
      const std::string& name = key.Scalar();
      count_text(key);
      if (out.contains(name)) refuse_at(key, fmt::format("key \"{}\" is given twice", name));
      if (path.size() + name.size() <= kMaxKeyWithLine && path.find("[]") == std::string::npos)
        document_.lines.emplace(path + name, key.Mark().line + 1);
      Json made = value(member, path + name + ".");
      if (name != "<<" || key.Tag() != "?")
        out[name] = std::move(made);
      else
        append(merged, std::move(made));
      for (const Json& source : merged)
        if (!source.is_object()) refuse_at(member, "<< takes a mapping or a list of mappings");
    }
    for (const Json& source : merged)  // only keys that are not set yet
      for (const auto& [key, inner] : source.items())
        if (!out.contains(key)) out[key] = inner;
    return out;
  }

  ConfigDocument document_;
  std::vector<YAML::Node> open_;
  std::size_t values_ = 0, text_bytes_ = 0;
};

/// Refuses what the library would accept: a zero byte, which it takes for the end of the text, and invalid UTF-8.
void check_characters(std::string_view text, std::string_view name) {
  YAML::Mark at = YAML::Mark::null_mark();
  if (text.size() > kMaxYamlBytes) refuse(name, at, fmt::format("larger than {} bytes", kMaxYamlBytes));
  if (!is_utf8(text)) refuse(name, at, "invalid UTF-8");
  at.line = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0x7F || (byte < 0x20 && c != '\n' && c != '\t' && c != '\r'))
      refuse(name, at, fmt::format("a control character (0x{:02x})", byte));
    at.line += c == '\n';
  }
}

/// Parses the whole text as a number, if it is one.
template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

ConfigDocument parse_yaml(std::string_view text, std::string_view name) {
  check_characters(text, name);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty()) refuse(name, YAML::Mark::null_mark(), "the YAML document is empty");
    if (documents.size() > 1)
      refuse(name, YAML::Mark::null_mark(), "more than one YAML document", "keep what is before the second ---");
    return YamlReader(name).read(documents[0]);
  } catch (const YAML::Exception& e) {  // errors of the library
    refuse(name, e.mark, "invalid YAML: " + e.msg);
  }
}

Json yaml_plain_value(std::string_view text) {
  constexpr std::string_view kTrue[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"},
                             kFalse[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"};
  if (std::ranges::find(kTrue, text) != std::end(kTrue)) return true;
  if (std::ranges::find(kFalse, text) != std::end(kFalse)) return false;
  const bool numeric = text.find_first_not_of("+-0123456789_.eE") == std::string_view::npos;
  if (!numeric || text.starts_with('_')) return std::string(text);
  std::string digits(text);
  std::erase(digits, '_');  // digit separators
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.erase(0, 1);
  const std::string_view unsigned_digits = std::string_view(digits).substr(digits.starts_with('-') ? 1 : 0);
  const bool octal = unsigned_digits.size() > 1 && unsigned_digits.starts_with('0') &&
                     unsigned_digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (octal) return std::string(text);  // ambiguous between YAML versions
  if (const auto n = whole_number<std::int64_t>(digits)) return *n;
  if (const auto x = whole_number<double>(digits)) return *x;
  return std::string(text);
}

}  // namespace qtrain
