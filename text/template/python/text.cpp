#include "text/template/python/text.h"

#include <algorithm>

#include "text/template/python/characters.h"
#include "text/template/python/code_points.h"
#include "text/template/python/error.h"

namespace qtrain {
namespace {

std::vector<std::string> split_at(std::string_view text, std::string_view separator, std::int64_t limit) {
  if (separator.empty()) py_fail("empty separator");
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = text.find(separator, start);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(start, at - start));
    start = at + separator.size();
  }
  parts.emplace_back(text.substr(start));
  return parts;
}

std::vector<std::string> rsplit_at(std::string_view text, std::string_view separator, std::int64_t limit) {
  if (separator.empty()) py_fail("empty separator");
  std::vector<std::string> parts;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

/// Length in bytes of the text in front of the first whitespace.
std::size_t word_length(std::string_view text) {
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    if (is_py_space(next_code_point(text, pos))) return at;
  }
  return text.size();
}

/// Offset behind the last whitespace.
std::size_t last_word(std::string_view text) {
  for (std::size_t end = text.size(); end > 0;) {
    std::size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    std::size_t pos = start;
    if (is_py_space(next_code_point(text, pos))) return end;
    end = start;
  }
  return 0;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string_view py_strip(std::string_view text, Ends ends, std::optional<std::string_view> chars) {
  const std::u32string set = chars ? code_points(*chars) : std::u32string();
  const auto strips = [&](char32_t c) { return chars ? set.find(c) != std::u32string::npos : is_py_space(c); };
  if (ends != Ends::right)
    while (!text.empty()) {
      std::size_t pos = 0;
      if (!strips(next_code_point(text, pos))) break;
      text.remove_prefix(pos);
    }
  if (ends != Ends::left)
    while (!text.empty()) {
      std::size_t start = text.size() - 1;
      while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
      std::size_t pos = start;
      if (!strips(next_code_point(text, pos))) break;
      text.remove_suffix(text.size() - start);
    }
  return text;
}

std::vector<std::string> py_split(std::string_view text, std::optional<std::string_view> separator,
                                  std::int64_t limit) {
  if (separator) return split_at(text, *separator, limit);
  std::vector<std::string> parts;
  text = py_strip(text, Ends::left);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.emplace_back(text);
      break;
    }
    const std::size_t n = word_length(text);
    parts.emplace_back(text.substr(0, n));
    text = py_strip(text.substr(n), Ends::left);
  }
  return parts;
}

std::vector<std::string> py_rsplit(std::string_view text, std::optional<std::string_view> separator,
                                   std::int64_t limit) {
  if (separator) return rsplit_at(text, *separator, limit);
  if (limit < 0) return py_split(text, std::nullopt, -1);
  std::vector<std::string> parts;
  text = py_strip(text, Ends::right);
  while (!text.empty()) {
    if (static_cast<std::int64_t>(parts.size()) >= limit) {
      parts.emplace_back(text);
      break;
    }
    const std::size_t at = last_word(text);
    parts.emplace_back(text.substr(at));
    text = py_strip(text.substr(0, at), Ends::right);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> py_splitlines(std::string_view text, LineEnds ends) {
  std::vector<std::string> lines;
  std::size_t start = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const char32_t c = next_code_point(text, pos);
    if (!is_line_end(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.emplace_back(text.substr(start, (ends == LineEnds::keep ? pos : at) - start));
    start = pos;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

std::string py_replace(PyWork& work, std::string_view text, std::string_view old, std::string_view fresh,
                       std::int64_t count) {
  std::string out;
  std::size_t start = 0, pos = 0;
  for (std::int64_t done = 0; count < 0 || done < count; ++done) {
    // An empty text is found before every character and at the end.
    if (old.empty() && done > 0) {
      if (pos == text.size()) break;
      next_code_point(text, pos);
    }
    const std::size_t at = old.empty() ? pos : text.find(old, start);
    if (at == std::string_view::npos) break;
    out.append(text.substr(start, at - start)).append(fresh);
    start = at + old.size();
    work.make(fresh.size());
    work.require_fits(out.size());
  }
  work.make(text.size());
  return out.append(text.substr(start));
}

}  // namespace qtrain
