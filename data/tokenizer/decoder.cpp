#include "data/tokenizer/decoder.h"

#include <algorithm>
#include <optional>

#include "data/tokenizer/regex.h"
#include "data/tokenizer/unicode.h"

namespace qtrain {
namespace {

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) append_bytes(token, bytes);
    tokens.assign(1, utf8_lossy(bytes));
  }

 private:
  // A token with a character that stands for no byte (an added token) is taken as it is.
  static void append_bytes(const std::string& token, std::string& bytes) {
    std::string raw;
    for (std::size_t i = 0; i < token.size();) {
      const Utf8Char c = utf8_at(token, i);
      const int byte = byte_of_printable(c.value);
      if (byte < 0) {
        bytes += token;
        return;
      }
      raw += static_cast<char>(byte);
      i += c.size;
    }
    bytes += raw;
  }
};

std::optional<char> byte_token(const std::string& t) {
  if (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : t.substr(3, 2)) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value * 16 + (std::isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return static_cast<char>(value);
}

class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      bool valid = true;
      for (std::size_t i = 0; i < bytes.size();) {
        const Utf8Char c = utf8_at(bytes, i);
        valid = valid && c.valid;
        i += c.size;
      }
      if (valid) out.push_back(bytes);
      else out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_token(token)) {
        bytes += *byte;
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& t : tokens) all += t;
    tokens.assign(1, all);
  }
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const Json& json) : content_(json.at("content")) {
    const Json& pattern = json.at("pattern");
    if (pattern.contains("Regex")) regex_.emplace(pattern["Regex"].get<std::string>());
    else text_ = pattern.at("String");
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      std::string out;
      std::size_t last = 0;
      const auto replace = [&](std::size_t begin, std::size_t end) {
        out.append(t, last, begin - last).append(content_);
        last = end;
      };
      if (regex_) regex_->each_match(t, replace);
      else
        for (std::size_t at = 0; !text_.empty() && (at = t.find(text_, at)) != std::string::npos; at += text_.size()) replace(at, at + text_.size());
      t = out.append(t, last);
    }
  }

 private:
  std::optional<Regex> regex_;
  std::string text_, content_;
};

class StripDecoder final : public Decoder {
 public:
  explicit StripDecoder(const Json& json) : content_(json.at("content")), start_(json.value("start", 0)), stop_(json.value("stop", 0)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& t : tokens) {
      for (int i = 0; i < start_ && t.starts_with(content_); ++i) t.erase(0, content_.size());
      for (int i = 0; i < stop_ && t.ends_with(content_); ++i) t.resize(t.size() - content_.size());
    }
  }

 private:
  std::string content_;
  int start_, stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const Json& json)
      : replacement_(json.value("replacement", "\xE2\x96\x81")),
        strips_(json.contains("prepend_scheme") ? json["prepend_scheme"] != "never" : json.value("add_prefix_space", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string out;
      const std::string& t = tokens[i];
      for (std::size_t at = 0; at < t.size();) {
        if (std::string_view(t).substr(at).starts_with(replacement_)) {
          if (!(i == 0 && at == 0 && strips_)) out += ' ';
          at += replacement_.size();
        } else {
          out += t[at++];
        }
      }
      tokens[i] = out;
    }
  }

 private:
  std::string replacement_;
  bool strips_;
};

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(const Json& list) {
    for (const Json& step : list)
      if (auto d = make_decoder(step)) steps_.push_back(std::move(d));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) step->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = json.at("type");
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(json);
  if (type == "Strip") return std::make_unique<StripDecoder>(json);
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(json);
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(json.at("decoders"));
  fail(ErrorKind::input, {.cause = "decoder \"" + type + "\" is not supported",
                          .remedy = "supported: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence"});
}

}  // namespace qtrain
