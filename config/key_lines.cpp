#include "config/key_lines.h"

#include <vector>

#include "core/json.h"

namespace qtrain {
namespace {

/// Walks valid JSON token by token; only structure, strings and lines matter.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  std::map<std::string, int> run() {
    while (at_ < text_.size()) step();
    return std::move(lines_);
  }

 private:
  struct Frame {
    bool object = false;
    std::string path;  ///< of the object itself, with a trailing dot unless it is the document
    std::string key;   ///< the member being read
  };

  void step() {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == '/') return skip_comment();
    if (c == '"') return string();
    if (c == '{' || c == '[') open(c == '{');
    if ((c == '}' || c == ']') && !stack_.empty()) stack_.pop_back();
    if (c == ',' && !stack_.empty()) stack_.back().key.clear();
    ++at_;
  }

  void open(bool object) {
    std::string path;
    if (!stack_.empty()) {
      const Frame& top = stack_.back();
      path = top.object ? top.path + top.key + "." : top.path + "[].";
    }
    stack_.push_back({object, std::move(path), {}});
  }

  void skip_comment() {
    const bool block = text_.substr(at_, 2) == "/*";
    const auto end = text_.find(block ? "*/" : "\n", at_);
    const std::size_t stop = end == std::string_view::npos ? text_.size() : end + (block ? 2 : 0);
    for (; at_ < stop; ++at_) line_ += text_[at_] == '\n';
  }

  void string() {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
    if (stack_.empty() || !stack_.back().object || !stack_.back().key.empty()) return;
    Frame& top = stack_.back();
    const Json key = Json::parse(text_.substr(begin, at_ - begin), nullptr, false);
    top.key = key.is_string() ? key.get<std::string>() : "?";
    if (top.path.find("[]") == std::string::npos) lines_.emplace(top.path + top.key, line_);
    if (top.key.empty()) top.key = "?";
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Frame> stack_;
  std::map<std::string, int> lines_;
};

}  // namespace

std::map<std::string, int> key_lines(std::string_view text) {
  return Walker(text).run();
}

}  // namespace qtrain
