// A certificate's names bind the site that shows it.
#include "core/runtime/authenticated_names.h"

#include <gtest/gtest.h>

namespace collab {
namespace {

TEST(AuthenticatedNames, AllowEveryNameWithoutACertificate) {
  AuthenticatedNames names;
  EXPECT_EQ(names.difference(LinkId{1}, "paris"), "");
  names.put(LinkId{2}, {"rome"});
  EXPECT_EQ(names.difference(LinkId{1}, "paris"), "") << "another link's certificate says nothing of this one";
}

TEST(AuthenticatedNames, AllowOnlyNamesOfTheCertificateAndReportBothNames) {
  AuthenticatedNames names;
  names.put(LinkId{1}, {"paris", "paris.example"});
  EXPECT_EQ(names.difference(LinkId{1}, "paris.example"), "");
  EXPECT_EQ(
      names.difference(LinkId{1}, "tokyo"),
      "its certificate is that of \"paris\", \"paris.example\", and it says that it is \"tokyo\": set COLLAB_SITE to "
      "the certificate's name, or make it one with this name [tls.other-name]");
}

TEST(AuthenticatedNames, AreForgottenWithTheLink) {
  AuthenticatedNames names;
  names.put(LinkId{1}, {"paris"});
  names.closed(LinkId{1});
  EXPECT_EQ(names.difference(LinkId{1}, "tokyo"), "");
}

}  // namespace
}  // namespace collab
