// Links do what the knobs of links say.
#include <gtest/gtest.h>

#include "collab/config.h"
#include "transport/tcp/tcp_transport.h"

namespace collab {
namespace {

TEST(TcpOptionsTest, EachKnobOfLinksIsTaken) {
  const auto loaded = load_config({{"COLLAB_CONNECTIONS", "7"},
                                   {"COLLAB_TCP_CONGESTION", "cubic"},
                                   {"COLLAB_TOKEN", std::string(32, 'k')},
                                   {"COLLAB_TOKEN_FILE", "/key"},
                                   {"COLLAB_TLS_CERT", "/cert"},
                                   {"COLLAB_TLS_KEY", "/private"},
                                   {"COLLAB_TLS_CA", "/authority"},
                                   {"COLLAB_INSECURE", "1"},
                                   {"COLLAB_LINK_GRACE", "7s"},
                                   {"COLLAB_HEARTBEAT", "300ms"},
                                   {"COLLAB_MAX_MBIT_UP", "20"},
                                   {"COLLAB_MAX_MBIT_DOWN", "30.5"}},
                                  {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const TcpOptions options = tcp_options(*loaded);
  EXPECT_EQ(options.connections, 7U);
  EXPECT_EQ(options.congestion, "cubic");
  EXPECT_EQ(options.token, std::string(32, 'k'));
  EXPECT_EQ(options.token_file, "/key");
  EXPECT_EQ(options.tls_cert, "/cert");
  EXPECT_EQ(options.tls_key, "/private");
  EXPECT_EQ(options.tls_ca, "/authority");
  EXPECT_TRUE(options.insecure);
  EXPECT_EQ(options.link_grace, std::chrono::seconds(7));
  EXPECT_EQ(options.heartbeat, std::chrono::milliseconds(300));
  EXPECT_EQ(options.max_mbit_up, 20);
  EXPECT_EQ(options.max_mbit_down, 30.5);
}

}  // namespace
}  // namespace collab
