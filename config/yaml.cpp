#include "config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "text/tokenizer/unicode.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxYamlBytes = 1u << 20, kMaxYamlDepth = 64;

std::size_t values_in(const Json& value) {
  std::size_t n = 1;
  if (value.is_structured())
    for (const Json& member : value) n += values_in(member);
  return n;
}

/// Builds JSON from the parser's events. Aliases are copied, so what they come to is counted.
class YamlReader final : public YAML::EventHandler {
 public:
  explicit YamlReader(std::string_view name) : name_(name) {}

  ConfigDocument take() { return {.value = std::move(root_), .lines = std::move(lines_), .name = std::string(name_)}; }

  [[noreturn]] void refuse(const YAML::Mark& at, std::string cause, std::string remedy = {}) const {
    const std::string place = at.line < 0 ? std::string(name_) : fmt::format("{}:{}", name_, at.line + 1);
    fail(ErrorKind::usage, {.cause = std::move(cause), .place = place, .remedy = std::move(remedy)});
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& at, YAML::anchor_t anchor) override {
    if (expects_key()) refuse(at, "a key without a name");
    finish(at, anchor, nullptr);
  }

  void OnAlias(const YAML::Mark& at, YAML::anchor_t anchor) override {
    if (expects_key()) refuse(at, "an alias cannot be a key");
    const auto it = anchored_.find(anchor);
    if (it == anchored_.end()) refuse(at, "an alias for something that it is a part of");
    count(at, values_in(it->second));
    put(at, it->second);
  }

  void OnScalar(const YAML::Mark& at, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (expects_key()) return set_key(at, tag, value);
    finish(at, anchor, scalar(at, tag, value));
  }

  void OnSequenceStart(const YAML::Mark& at, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(at, tag, {.value = Json::array(), .anchor = anchor});
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& at, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(at, tag, {.value = Json::object(), .anchor = anchor});
  }
  void OnMapEnd() override { close(); }

 private:
  struct Container {
    Json value;
    YAML::anchor_t anchor = 0;
    YAML::Mark at = {};
    std::string path = {};                ///< with a dot behind it, unless empty
    std::optional<std::string> key = {};  ///< of the member that comes next
    bool merge = false;                   ///< whether that is <<
    std::vector<Json> merged = {};        ///< objects whose members fill the gaps
  };

  bool expects_key() const { return !open_.empty() && open_.back().value.is_object() && !open_.back().key; }

  void set_key(const YAML::Mark& at, const std::string& tag, const std::string& key) {
    Container& top = open_.back();
    if (top.value.contains(key)) refuse(at, fmt::format("key \"{}\" is given twice", key));
    top.merge = key == "<<" && tag == "?";
    top.key = key;
    if (top.path.find("[]") == std::string::npos) lines_.emplace(top.path + key, at.line + 1);
  }

  Json scalar(const YAML::Mark& at, const std::string& tag, const std::string& text) const {
    if (tag == "?") return yaml_plain_value(text);
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return text;
    for (const char* known : {"bool", "int", "float"})
      if (tag == fmt::format("tag:yaml.org,2002:{}", known)) return yaml_plain_value(text);
    refuse(at, fmt::format("tag {} is not known", tag), "write plain values");
  }

  void open(const YAML::Mark& at, const std::string& tag, Container container) {
    if (expects_key()) refuse(at, "a key has to be one word or text in quotes");
    const bool plain =
        tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:map" || tag == "tag:yaml.org,2002:seq";
    if (!plain) refuse(at, fmt::format("tag {} is not known", tag), "write plain lists and mappings");
    if (open_.size() >= kMaxYamlDepth) refuse(at, fmt::format("nested deeper than {} levels", kMaxYamlDepth));
    container.at = at;
    if (!open_.empty()) container.path = open_.back().path + open_.back().key.value_or("[]") + ".";
    open_.push_back(std::move(container));
  }

  void close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    for (const Json& source : done.merged)
      for (const auto& [key, value] : source.items())
        if (!done.value.contains(key)) done.value[key] = value;
    finish(done.at, done.anchor, std::move(done.value));
  }

  void finish(const YAML::Mark& at, YAML::anchor_t anchor, Json value) {
    count(at, 1);
    if (anchor != 0) anchored_[anchor] = value;
    put(at, std::move(value));
  }

  void put(const YAML::Mark& at, Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Container& top = open_.back();
    if (top.value.is_array()) return top.value.push_back(std::move(value));
    if (top.merge)
      merge(at, std::move(value));
    else
      top.value[*top.key] = std::move(value);
    top.key.reset();
  }

  void merge(const YAML::Mark& at, Json value) {
    const Json sources = value.is_array() ? std::move(value) : Json::array({std::move(value)});
    for (const Json& source : sources) {
      if (!source.is_object()) refuse(at, "<< takes a mapping or a list of mappings");
      open_.back().merged.push_back(source);
    }
  }

  void count(const YAML::Mark& at, std::size_t more) {
    values_ += more;
    if (values_ > kMaxConfigValues) refuse(at, fmt::format("more than {} values, aliases counted", kMaxConfigValues));
  }

  std::string_view name_;
  Json root_;
  std::map<std::string, int> lines_;
  std::vector<Container> open_;
  std::map<YAML::anchor_t, Json> anchored_;
  std::size_t values_ = 0;
};

YAML::Mark mark_of_line(int line) {
  YAML::Mark mark;
  mark.line = line;
  return mark;
}

/// The library reads a zero byte or the like as the end of the text, and bytes that are no UTF-8 as they are.
void check_characters(const YamlReader& reader, std::string_view text) {
  if (text.size() > kMaxYamlBytes)
    reader.refuse(YAML::Mark::null_mark(), fmt::format("larger than {} bytes", kMaxYamlBytes));
  if (!is_utf8(text)) reader.refuse(YAML::Mark::null_mark(), "invalid UTF-8");
  int line = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0x7F || (byte < 0x20 && c != '\n' && c != '\t' && c != '\r'))
      reader.refuse(mark_of_line(line), fmt::format("a control character (0x{:02x})", byte));
    line += c == '\n';
  }
}

/// The number that the whole text is, if it is one.
template <class T>
std::optional<T> whole_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

ConfigDocument parse_yaml(std::string_view text, std::string_view name) {
  YamlReader reader(name);
  check_characters(reader, text);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(reader)) reader.refuse(YAML::Mark::null_mark(), "the YAML document is empty");
    YamlReader second(name);
    if (parser.HandleNextDocument(second))
      reader.refuse(YAML::Mark::null_mark(), "more than one YAML document", "keep what is before the second ---");
  } catch (const YAML::Exception& e) {  // the library's own errors
    reader.refuse(e.mark, "invalid YAML: " + e.msg);
  }
  return reader.take();
}

Json yaml_plain_value(std::string_view text) {
  constexpr std::string_view kTrue[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"},
                             kFalse[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"};
  if (std::ranges::find(kTrue, text) != std::end(kTrue)) return true;
  if (std::ranges::find(kFalse, text) != std::end(kFalse)) return false;
  const bool numeric = text.find_first_not_of("+-0123456789_.eE") == std::string_view::npos;
  if (!numeric || text.starts_with('_')) return std::string(text);
  std::string digits(text);
  std::erase(digits, '_');  // which may set them apart
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.erase(0, 1);
  const std::string_view unsigned_digits = std::string_view(digits).substr(digits.starts_with('-') ? 1 : 0);
  const bool octal = unsigned_digits.size() > 1 && unsigned_digits.starts_with('0') &&
                     unsigned_digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (octal) return std::string(text);  // what it means depends on who reads it
  if (const auto n = whole_number<std::int64_t>(digits)) return *n;
  if (const auto x = whole_number<double>(digits)) return *x;
  return std::string(text);
}

}  // namespace qtrain
