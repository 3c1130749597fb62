#include "core/base/text.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "core/base/address.h"

namespace collab {
namespace {

TEST(Utf8, TakesWhatIsWellFormed) {
  for (const std::string_view text : {"", "plain", "\x7f", "\xC2\x80", "Z\xC3\xBCrich", "\xE0\xA0\x80", "\xED\x9F\xBF",
                                      "\xEF\xBF\xBD", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndFragments) {
  for (const std::string_view text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2 ", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF0\x90\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "good\xFEso far"}) {
    EXPECT_FALSE(is_valid_utf8(text));
  }
}

TEST(JsonQuote, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(json_quote("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(json_quote("1\n2\r3\t4\x01"), R"("1\n2\r3\t4\u0001")");
  EXPECT_EQ(json_quote(std::string_view("\0", 1)), R"("\u0000")");
  EXPECT_EQ(json_quote("Z\xC3\xBCrich"), "\"Z\xC3\xBCrich\"");
  EXPECT_EQ(json_quote("a\xFF\xC3"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonQuote, IsPrintable) {
  EXPECT_EQ(json_quote("a\x7f\xC2\x85\xE2\x80\xAE\xF3\xA0\x81\x81"), R"("a\u007f\u0085\u202e\udb40\udc41")");
}

TEST(InMegabytes, ShowsZeroOnlyForZero) {
  EXPECT_EQ(in_megabytes(0), "0.0 MB");
  EXPECT_EQ(in_megabytes(640), "0.6 kB");
  EXPECT_EQ(in_megabytes(49'999), "50.0 kB");
  EXPECT_EQ(in_megabytes(50'000), "0.1 MB");
  EXPECT_EQ(in_megabytes(28'000'000'000), "28000.0 MB");
}

TEST(JsonNumber, IsTheShortestThatReadsBackAndNeverAComma) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(0.1F), "0.1");
  EXPECT_EQ(json_number(1795651366.405123), "1795651366.405123");
  EXPECT_EQ(json_number(1e-9), "1e-09");
  EXPECT_EQ(json_number(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<float>::infinity()), "null");
}

TEST(Escaped, ShowsControlCharactersAndLeavesTextAsItIs) {
  EXPECT_EQ(escaped("Z\xC3\xBCrich \\x1b"), "Z\xC3\xBCrich \\x1b") << "shown as it is, and once";
  EXPECT_EQ(escaped("\x1b]0;\x07\n\r"), "\\x1b]0;\\x07\\n\\x0d");
  EXPECT_EQ(escaped("\xE2\x80\xAE\xE2\x81\xA6"), "\\u202e\\u2066") << "marks of direction";
  EXPECT_EQ(escaped("a\xFFz\xF3\xA0\x81\x81"), "a\\xffz\\U000e0041");
}

TEST(Printable, IsWhatATerminalShows) {
  for (const std::string_view text : {"", "paris", "Z\xC3\xBCrich", "\xE6\x9D\xB1\xE4\xBA\xAC", "a b"}) {
    EXPECT_TRUE(is_printable(text)) << text;
  }
  for (const std::string_view text :
       {"a\nb", "\r", "\x1b[31m", "\x7f", "\xC2\x9B", "\xE2\x80\x8B", "\xD8\x9C", "\xFF"}) {
    EXPECT_FALSE(is_printable(text)) << escaped(text);
  }
}

TEST(EditDistance, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("codec", "codec"), 0U);
  EXPECT_EQ(edit_distance("codec", "codecs"), 1U);
  EXPECT_EQ(edit_distance("codec", "cdec"), 1U);
  EXPECT_EQ(edit_distance("codec", "codek"), 1U);
  EXPECT_EQ(edit_distance("codec", "ocdec"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(Nearest, FindsTheClosestName) {
  constexpr std::array<std::string_view, 3> kNames{"codec", "outer", "outer_lr"};
  EXPECT_EQ(nearest("outer_rl", kNames), "outer_lr");
  EXPECT_EQ(nearest("cdoec", kNames), "codec");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(HostPort, ReadsNamesAndBothKindsOfAddress) {
  EXPECT_EQ(*parse_host_port("paris.example-1.org:29500"), (HostPort{"paris.example-1.org", 29500}));
  EXPECT_EQ(*parse_host_port("10.0.0.1:0"), (HostPort{"10.0.0.1", 0}));
  EXPECT_EQ(*parse_host_port("[fe80::1%eth0]:80"), (HostPort{"fe80::1%eth0", 80}));
  for (const std::string text : {"paris:1", "[::1]:65535"}) EXPECT_EQ(to_string(*parse_host_port(text)), text);
}

TEST(HostPort, SaysWhatIsWrong) {
  const auto why = [](std::string_view text) { return parse_host_port(text).status().message(); };
  EXPECT_NE(why("paris").find("port is missing"), std::string::npos);
  EXPECT_NE(why("::1:80").find("brackets"), std::string::npos);
  EXPECT_NE(why(":80").find("not a host"), std::string::npos);
  EXPECT_NE(why("a b:80").find("not a host"), std::string::npos);
  EXPECT_NE(why("[paris:80").find("not a host"), std::string::npos);
  for (const std::string_view text : {"paris:", "paris:http", "paris:65536", "paris:-1", "paris:8 0", "paris:+1"}) {
    EXPECT_NE(why(text).find("not a port"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace collab
