"""Numbers and structures of rtnetlink(7), with the names of the kernel's headers."""

import struct

# linux/rtnetlink.h: types of messages. Each kind of object has four types, starting at a multiple of four.
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
RTM_GETNEIGHTBL, RTM_SETNEIGHTBL = 66, 67
RTM_GETSTATS = 94

# linux/rtnetlink.h: groups of listeners, as bits.
RTMGRP_LINK, RTMGRP_TC, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE = 0x1, 0x8, 0x10, 0x40
RTMGRP_IPV4_RULE, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE = 0x80, 0x100, 0x400

# linux/if_link.h, if.h and if_arp.h: links.
#: struct ifinfomsg: family, type, index, flags and the mask of flags to change.
IFINFOMSG = struct.Struct("=BxHiII")
IFF_UP, ARPHRD_ETHER = 1, 1
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_OPERSTATE = 1, 3, 4, 5, 10, 16
IFLA_LINKINFO, IFLA_STATS64, IFLA_AF_SPEC, IFLA_GROUP = 18, 23, 26, 27
IFLA_EXT_MASK, IFLA_LINK_NETNSID = 29, 37
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
IFLA_VLAN_ID, IFLA_VLAN_PROTOCOL = 1, 5
IFLA_INET_CONF, IPV4_DEVCONF_PROXY_ARP = 1, 3
RTEXT_FILTER_SKIP_STATS = 8
#: The first eight numbers of struct rtnl_link_stats64.
LINK_STATS64 = struct.Struct("=8Q")
#: struct if_stats_msg: family, index and the mask of attributes.
IF_STATS_MSG = struct.Struct("=BxHII")
IFLA_STATS_LINK_64 = 1

# linux/if_addr.h: addresses.
#: struct ifaddrmsg: family, length of the prefix, flags, scope and index.
IFADDRMSG = struct.Struct("=BBBBI")
IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS = 1, 2, 8
IFA_F_NODAD, IFA_F_NOPREFIXROUTE = 0x02, 0x200

# linux/rtnetlink.h and fib_rules.h: routes and rules.
#: struct rtmsg and fib_rule_hdr: family, lengths of destination and source, TOS, table, then of a route
#: protocol, scope and type, and of a rule two reserved bytes and the action; flags.
RTMSG = struct.Struct("=8BI")
#: struct rtnexthop: length, flags, hops and index.
RTNEXTHOP = struct.Struct("=HBBi")
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_PREFSRC = 1, 4, 5, 6, 7
RTA_MULTIPATH, RTA_TABLE, RTA_VIA = 9, 15, 18
RTN_UNICAST, RTN_UNREACHABLE = 1, 7
RT_SCOPE_UNIVERSE, RT_SCOPE_LINK, RT_SCOPE_NOWHERE = 0, 253, 255
RT_TABLE_MAIN = 254
RTPROT_KERNEL, RTPROT_BOOT, RTPROT_STATIC = 2, 3, 4
FRA_SRC, FRA_IIFNAME, FRA_PRIORITY, FRA_TABLE, FRA_PROTOCOL = 2, 3, 6, 15, 21
FR_ACT_TO_TBL = 1

# linux/rtnetlink.h, pkt_sched.h, pkt_cls.h and tc_act/tc_mirred.h: traffic control.
#: struct tcmsg: family, index, handle, parent and information.
TCMSG = struct.Struct("=BxxxiIII")
TC_H_ROOT, TC_H_INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_TBF_PARMS, TCA_TBF_RATE64 = 1, 4
#: struct tc_tbf_qopt: link layer, overhead, minimum packet size and rate (struct tc_ratespec), no peak rate,
#: the limit of queued bytes, the burst in ticks.
TC_TBF_QOPT = struct.Struct("=xBHxxHI12xII4x")
TC_LINKLAYER_ETHERNET = 1
#: Length of a tick in nanoseconds (PSCHED_SHIFT of net/pkt_sched.h).
TICK = 64
TCA_FQ_CODEL_FLOWS = 5
TCA_FQ_CODEL_MEMORY_LIMIT = 9
TCA_U32_SEL, TCA_U32_ACT = 5, 7
#: struct tc_u32_sel: flags, number of keys.
TC_U32_SEL = struct.Struct("=BxB13x")
#: struct tc_u32_key: the mask.
TC_U32_KEY = struct.Struct("=I12x")
TC_U32_TERMINAL = 1
TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS = 1, 2, 2
#: struct tc_mirred: the action on the original packet, the action of mirred, and the index of the target.
TC_MIRRED = struct.Struct("=8xi8xiI")
TC_ACT_STOLEN, TCA_EGRESS_REDIR = 4, 1
ETH_P_ALL, ETH_P_8021Q, ETH_P_8021AD = 3, 0x8100, 0x88A8

# linux/neighbour.h: tables of neighbours.
#: struct ndtmsg.
NDTMSG = struct.Struct("=BxH")
NDTA_NAME, NDTA_THRESH1 = 1, 2
