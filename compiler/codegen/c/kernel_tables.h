/* erf and pow of doubles, which read tables. It follows kernel_math.h where a kernel calls one of them.
 *
 * Adding `rounder` to a number rounds the number to a multiple of the table's step; the row's number is then in the low bits of the
 * sum. A mask keeps every index within the array, whatever the number is: gcc then knows that the loads of all lanes may be done, and
 * makes single loads, which on a Zen 4 take less time than AVX-512's gather. The rows come from scripts/minimax.py. */
#ifndef STITCHFLEET_KERNEL_TABLES_H_
#define STITCHFLEET_KERNEL_TABLES_H_

/* ---- erf ------------------------------------------------------------------------------------------------------------------------ */

/* erf and its derivative at k / 64, as long as erf is below 1. */
static const double stitch_erf_rows[512][2] = {
    {0, 0x1.20dd750429b6dp+0}, {0x1.20d77083f17ap-6, 0x1.20cb67bd452c7p+0}, {0x1.20c5645dd2538p-5, 0x1.209546ad13ccfp+0},
    {0x1.b0fafef135745p-5, 0x1.203b261cd0053p+0}, {0x1.207d480e90658p-4, 0x1.1fbd27cdc72d3p+0},
    {0x1.68591a1e83b5dp-4, 0x1.1f1b7ae44867fp+0}, {0x1.b0081148a873ap-4, 0x1.1e565bca400d4p+0},
    {0x1.f78159ec8bb5p-4, 0x1.1d6e14099944ap+0}, {0x1.1f5e1a35c3b89p-3, 0x1.1c62fa1e869b6p+0},
    {0x1.42d7fc2f64959p-3, 0x1.1b357141d95d5p+0}, {0x1.662a0bdf7a89fp-3, 0x1.19e5e92b964abp+0},
    {0x1.895010fdbdbfdp-3, 0x1.1874ddcdfce24p+0}, {0x1.ac45e37fe2526p-3, 0x1.16e2d7093cd8cp+0},
    {0x1.cf076d1233237p-3, 0x1.153068581b781p+0}, {0x1.f190aa85540e2p-3, 0x1.135e3075d076bp+0},
    {0x1.09eed6982b948p-2, 0x1.116cd8fd67618p+0}, {0x1.1af54e232d609p-2, 0x1.0f5d1602f7e41p+0},
    {0x1.2bd9db0f7827fp-2, 0x1.0d2fa5a70c168p+0}, {0x1.3c9aa8b84bedap-2, 0x1.0ae54fa490723p+0},
    {0x1.4d35ef3e5372ep-2, 0x1.087ee4d9ad247p+0}, {0x1.5da9f415ff23fp-2, 0x1.05fd3ecbec298p+0},
    {0x1.6df50a8dff772p-2, 0x1.03613f2812dafp+0}, {0x1.7e15944d9d3e4p-2, 0x1.00abcf3e187a9p+0},
    {0x1.8e0a01cab516bp-2, 0x1.fbbbbef34b4b2p-1}, {0x1.9dd0d2b721f39p-2, 0x1.f5f0cdaf15313p-1},
    {0x1.ad68966569a87p-2, 0x1.eff8c4b1375dbp-1}, {0x1.bccfec24855b8p-2, 0x1.e9d5a8e4c934ep-1},
    {0x1.cc058392a6d2dp-2, 0x1.e38988fc46e72p-1}, {0x1.db081ce6e2a48p-2, 0x1.dd167c4cf9d2ap-1},
    {0x1.e9d68931ae65p-2, 0x1.d67ea1a8b5368p-1}, {0x1.f86faa9428f9dp-2, 0x1.cfc41e36c7df9p-1},
    {0x1.03693a371519cp-1, 0x1.c8e91c4d01368p-1}, {0x1.0a7ef5c18edd2p-1, 0x1.c1efca49a5011p-1},
    {0x1.1178930ada115p-1, 0x1.bada596f25436p-1}, {0x1.1855a5fd3dd5p-1, 0x1.b3aafcc27502ep-1},
    {0x1.1f15cb50bc4dep-1, 0x1.ac63e7ecc1411p-1}, {0x1.25b8a88b6dd7fp-1, 0x1.a5074e215762p-1},
    {0x1.2c3debfd7d6c1p-1, 0x1.9d97610879642p-1}, {0x1.32a54cb8db67bp-1, 0x1.96164fafd8de3p-1},
    {0x1.38ee8a84beb71p-1, 0x1.8e86458169af8p-1}, {0x1.3f196dcd0f135p-1, 0x1.86e9694134b9ep-1},
    {0x1.4525c78dd5966p-1, 0x1.7f41dc12c9e89p-1}, {0x1.4b13713ad3513p-1, 0x1.7791b886e7403p-1},
    {0x1.50e24ca35fd2cp-1, 0x1.6fdb11b1e0c34p-1}, {0x1.569243d2b3a9bp-1, 0x1.681ff24b4ab04p-1},
    {0x1.5c2348ecc4dc3p-1, 0x1.60625bd75d07bp-1}, {0x1.61955607dd15dp-1, 0x1.58a445da7c74cp-1},
    {0x1.66e86d0312e82p-1, 0x1.50e79d1749ac9p-1}, {0x1.6c1c9759d0e5fp-1, 0x1.492e42d78d2c5p-1},
    {0x1.7131e5f496a5ap-1, 0x1.417a0c4049fdp-1}, {0x1.762870f720c6fp-1, 0x1.39ccc1b136d5ap-1},
    {0x1.7b00578c26037p-1, 0x1.32281e2fd1a92p-1}, {0x1.7fb9bfaed8078p-1, 0x1.2a8dcede3673bp-1},
    {0x1.8454d5f25760dp-1, 0x1.22ff727dd6f7bp-1}, {0x1.88d1cd474a2ep-1, 0x1.1b7e98fe26217p-1},
    {0x1.8d30debfc572ep-1, 0x1.140cc3173f007p-1}, {0x1.91724951b8fc6p-1, 0x1.0cab61f084b93p-1},
    {0x1.959651980da31p-1, 0x1.055bd6d32e8d7p-1}, {0x1.999d4192a5715p-1, 0x1.fc3ee5d1524bp-2},
    {0x1.9d8768656cc42p-1, 0x1.edeeee0959518p-2}, {0x1.a1551a16aaeafp-1, 0x1.dfca26f5bbf88p-2},
    {0x1.a506af4cc00f4p-1, 0x1.d1d2cfff91594p-2}, {0x1.a89c850b7d54dp-1, 0x1.c40b0729ed548p-2},
    {0x1.ac16fc7143263p-1, 0x1.b674c8ffc6283p-2}, {0x1.af767a741088bp-1, 0x1.a911f096fbc26p-2},
    {0x1.b2bb679ead19cp-1, 0x1.9be437a7de946p-2}, {0x1.b5e62fce16095p-1, 0x1.8eed36b886d93p-2},
    {0x1.b8f741ef54f83p-1, 0x1.822e655b417e7p-2}, {0x1.bbef0fbde6221p-1, 0x1.75a91a7f4d2edp-2},
    {0x1.bece0d82d1a5cp-1, 0x1.695e8cd31867ep-2}, {0x1.c194b1d49a184p-1, 0x1.5d4fd33729015p-2},
    {0x1.c443755820d64p-1, 0x1.517de540ce2a3p-2}, {0x1.c6dad2829ec62p-1, 0x1.45e99bcbb7915p-2},
    {0x1.c95b455cce69dp-1, 0x1.3a93b1998736cp-2}, {0x1.cbc54b476248dp-1, 0x1.2f7cc3fe6f423p-2},
    {0x1.ce1962c0e0d8bp-1, 0x1.24a55399ea239p-2}, {0x1.d0580b2cfd249p-1, 0x1.1a0dc51a9934dp-2},
    {0x1.d281c49d818dp-1, 0x1.0fb6620c550afp-2}, {0x1.d4970f9ce00d9p-1, 0x1.059f59af7a906p-2},
    {0x1.d6986cfa798e7p-1, 0x1.f79183b101c5bp-3}, {0x1.d8865d98abe01p-1, 0x1.e4652fadcb6b2p-3},
    {0x1.da61623cb41ep-1, 0x1.d1b982c50137p-3}, {0x1.dc29fb60715afp-1, 0x1.bf8e1b1ca2279p-3},
    {0x1.dde0a90611a0dp-1, 0x1.ade26b7fbed95p-3}, {0x1.df85ea8db188ep-1, 0x1.9cb5bd549b111p-3},
    {0x1.e11a3e8cf4eb8p-1, 0x1.8c07329874652p-3}, {0x1.e29e22a89d766p-1, 0x1.7bd5c7df3fe9cp-3},
    {0x1.e4121370224ccp-1, 0x1.6c205655be72p-3}, {0x1.e5768c3b4a3fcp-1, 0x1.5ce595c455b0ap-3},
    {0x1.e6cc0709c8a0dp-1, 0x1.4e241e912c305p-3}, {0x1.e812fc64db369p-1, 0x1.3fda6bc016994p-3},
    {0x1.e94be342e6743p-1, 0x1.3206dceef5f87p-3}, {0x1.ea7730ed0bbb9p-1, 0x1.24a7b84d38971p-3},
    {0x1.eb9558e6b42cep-1, 0x1.17bb2c8d41535p-3}, {0x1.eca6ccd709544p-1, 0x1.0b3f52ce8c383p-3},
    {0x1.edabfc7453e63p-1, 0x1.fe6460fef468p-4}, {0x1.eea5557137aep-1, 0x1.e723726b824a9p-4},
    {0x1.ef93436bc2daap-1, 0x1.d0b7a0f921e7cp-4}, {0x1.f0762fde45ee6p-1, 0x1.bb1c972f23e5p-4},
    {0x1.f14e8211e8c55p-1, 0x1.a64de673e8837p-4}, {0x1.f21c9f12f0677p-1, 0x1.92470a61b6965p-4},
    {0x1.f2e0e9a6a8b09p-1, 0x1.7f036c0107294p-4}, {0x1.f39bc242e43e6p-1, 0x1.6c7e64e7281cbp-4},
    {0x1.f44d870704911p-1, 0x1.5ab342383d178p-4}, {0x1.f4f693b67bd77p-1, 0x1.499d478bca735p-4},
    {0x1.f59741b4b97cfp-1, 0x1.3937b1b31925ap-4}, {0x1.f62fe80272419p-1, 0x1.297db960e4f63p-4},
    {0x1.f6c0db3c34641p-1, 0x1.1a6a95b1e786fp-4}, {0x1.f74a6d9a38383p-1, 0x1.0bf97e95f2a64p-4},
    {0x1.f7cceef15d631p-1, 0x1.fc4b5e32d6259p-5}, {0x1.f848acb544e95p-1, 0x1.e1d4cf1e2450ap-5},
    {0x1.f8bdf1fb7837p-1, 0x1.c885df3451a07p-5}, {0x1.f92d077f8d56dp-1, 0x1.b055303221015p-5},
    {0x1.f99633a838a57p-1, 0x1.993979e14fffep-5}, {0x1.f9f9ba8d3c733p-1, 0x1.83298d717210ep-5},
    {0x1.fa57ddfe27376p-1, 0x1.6e1c5893c380bp-5}, {0x1.fab0dd89d1309p-1, 0x1.5a08e85af27ep-5},
    {0x1.fb04f6868a944p-1, 0x1.46e66be00224p-5}, {0x1.fb54641aebbc9p-1, 0x1.34ac36ad8dafep-5},
    {0x1.fb9f5f473917p-1, 0x1.2351c2f2d1449p-5}, {0x1.fbe61eef4cf6ap-1, 0x1.12ceb37ff9bc3p-5},
    {0x1.fc28d7e4f9cdp-1, 0x1.031ad58d56279p-5}, {0x1.fc67bcf2d7b8fp-1, 0x1.e85c449e377f3p-6},
    {0x1.fca2fee770c79p-1, 0x1.cc0180af00a8bp-6}, {0x1.fcdacca0bfb73p-1, 0x1.b1160991ff737p-6},
    {0x1.fd0f5317f582fp-1, 0x1.978ae8b55ce1bp-6}, {0x1.fd40bd6d7a785p-1, 0x1.7f5188610ddc8p-6},
    {0x1.fd6f34f52013ap-1, 0x1.685bb5134ef13p-6}, {0x1.fd9ae142795e3p-1, 0x1.529b9e8cf9a1ep-6},
    {0x1.fdc3e835500b3p-1, 0x1.3e03d891b37dep-6}, {0x1.fdea6e062d0c9p-1, 0x1.2a875b5ffab56p-6},
    {0x1.fe0e9552ebdd6p-1, 0x1.181983e5133ddp-6}, {0x1.fe307f2b503dp-1, 0x1.06ae13b0d3255p-6},
    {0x1.fe504b1d9696cp-1, 0x1.ec72615a894c4p-7}, {0x1.fe6e1742f7cf6p-1, 0x1.cd5ec93c12432p-7},
    {0x1.fe8a004c19ae6p-1, 0x1.b00b38d6b3575p-7}, {0x1.fea4218d6594ap-1, 0x1.94624e78e0fafp-7},
    {0x1.febc950b3fa75p-1, 0x1.7a4f6aca256cbp-7}, {0x1.fed37386190fbp-1, 0x1.61beae53b72b7p-7},
    {0x1.fee8d486585eep-1, 0x1.4a9cf6bda3f4cp-7}, {0x1.fefcce6813974p-1, 0x1.34d7dbc76d7e5p-7},
    {0x1.ff0f766697c76p-1, 0x1.205dac02bd6b9p-7}, {0x1.ff20e0a7ba8c2p-1, 0x1.0d1d69569b82dp-7},
    {0x1.ff312046f2339p-1, 0x1.f60d8aa2a88f2p-8}, {0x1.ff404760319b4p-1, 0x1.d4143a9dfe965p-8},
    {0x1.ff4e671a85425p-1, 0x1.b430ecf4a83a8p-8}, {0x1.ff5b8fb26f5f6p-1, 0x1.9646f35a76624p-8},
    {0x1.ff67d08401202p-1, 0x1.7a3ade6c8b3e5p-8}, {0x1.ff733814af88cp-1, 0x1.5ff2750fe782p-8},
    {0x1.ff7dd41ce2b4dp-1, 0x1.4754abacdf1dcp-8}, {0x1.ff87b1913e853p-1, 0x1.30499b503957fp-8},
    {0x1.ff90dcaba4096p-1, 0x1.1aba78ba3af89p-8}, {0x1.ff9960f3eb327p-1, 0x1.06918b6355624p-8},
    {0x1.ffa14948549a7p-1, 0x1.e77448fb66bb9p-9}, {0x1.ffa89fe5b3625p-1, 0x1.c4412bf4b8f0bp-9},
    {0x1.ffaf6e6f4f5cp-1, 0x1.a3645330550ffp-9}, {0x1.ffb5bdf67fe6fp-1, 0x1.84ba3004a50dp-9},
    {0x1.ffbb97020011p-1, 0x1.6821000795a03p-9}, {0x1.ffc10194fcb64p-1, 0x1.4d78bba8ca5fdp-9},
    {0x1.ffc60535dd7f5p-1, 0x1.34a305080681fp-9}, {0x1.ffcaa8f4c9beap-1, 0x1.1d83170fbf6fbp-9},
    {0x1.ffcef371ea4d7p-1, 0x1.07fdb4dafea5fp-9}, {0x1.ffd2eae369a07p-1, 0x1.e7f232d9e263p-10},
    {0x1.ffd6951b33686p-1, 0x1.c2b9cf7f893bfp-10}, {0x1.ffd9f78c7524ap-1, 0x1.a024365f771bdp-10},
    {0x1.ffdd1750e122p-1, 0x1.8005f08d6f1efp-10}, {0x1.ffdff92db56e5p-1, 0x1.6235fbd7a4345p-10},
    {0x1.ffe2a1988857cp-1, 0x1.468dadf4080abp-10}, {0x1.ffe514bbdc197p-1, 0x1.2ce898809244ep-10},
    {0x1.ffe7567b7b5e1p-1, 0x1.15246dda49d47p-10}, {0x1.ffe96a78a04a9p-1, 0x1.fe41cd9bb4eeep-11},
    {0x1.ffeb5415e7c44p-1, 0x1.d57f524723822p-11}, {0x1.ffed167b12ac2p-1, 0x1.afc85e0f82e12p-11},
    {0x1.ffeeb49896c6dp-1, 0x1.8ce75e9f6f8ap-11}, {0x1.fff0312b010b5p-1, 0x1.6caa0d3582fe9p-11},
    {0x1.fff18ebe2b0e1p-1, 0x1.4ee1429bf7ccp-11}, {0x1.fff2cfb0453d9p-1, 0x1.3360ccd23db3ap-11},
    {0x1.fff3f634b79f9p-1, 0x1.19ff4663ae9dfp-11}, {0x1.fff50456dab8cp-1, 0x1.0295ef6591848p-11},
    {0x1.fff5fbfc8a439p-1, 0x1.da01102b5f851p-12}, {0x1.fff6dee89352ep-1, 0x1.b23a5a23e421p-12},
    {0x1.fff7aebcff755p-1, 0x1.8d986a4187285p-12}, {0x1.fff86cfd3e657p-1, 0x1.6be02102b352p-12},
    {0x1.fff91b102fca8p-1, 0x1.4cda5374ea275p-12}, {0x1.fff9ba420e834p-1, 0x1.30538fbb77ecdp-12},
    {0x1.fffa4bc63ee9ap-1, 0x1.161be46ad3b5p-12}, {0x1.fffad0b901755p-1, 0x1.fc0d55470cf51p-13},
    {0x1.fffb4a210b172p-1, 0x1.cfd4a5adec5cp-13}, {0x1.fffbb8f1049c6p-1, 0x1.a740684026555p-13},
    {0x1.fffc1e08f25f5p-1, 0x1.8208bc334a6a5p-13}, {0x1.fffc7a37857d2p-1, 0x1.5feada379d8b7p-13},
    {0x1.fffcce3b57bffp-1, 0x1.40a8c1949f75ep-13}, {0x1.fffd1ac4135f9p-1, 0x1.2408e9ba3327fp-13},
    {0x1.fffd607387b07p-1, 0x1.09d5f819c9e29p-13}, {0x1.fffd9fdeabccep-1, 0x1.e3bcf436a1a95p-14},
    {0x1.fffdd98e903b2p-1, 0x1.b7e94604479dcp-14}, {0x1.fffe0e0140857p-1, 0x1.8fdc1b2dcf7b9p-14},
    {0x1.fffe3daa95b18p-1, 0x1.6b4702d7d5849p-14}, {0x1.fffe68f4fa777p-1, 0x1.49e17724f4d41p-14},
    {0x1.fffe904222101p-1, 0x1.2b6875310f785p-14}, {0x1.fffeb3ebb267bp-1, 0x1.0f9e1b4dd36dfp-14},
    {0x1.fffed443e2787p-1, 0x1.ec929a665b449p-15}, {0x1.fffef1960d85dp-1, 0x1.be6abbb10a5aap-15},
    {0x1.ffff0c273bea2p-1, 0x1.94637d5bacfdbp-15}, {0x1.ffff2436a21dcp-1, 0x1.6e2367dc27f95p-15},
    {0x1.ffff39fe16963p-1, 0x1.4b581b8d170fcp-15}, {0x1.ffff4db27f146p-1, 0x1.2bb5cc22e5db6p-15},
    {0x1.ffff5f8435efcp-1, 0x1.0ef6c4c84a0fep-15}, {0x1.ffff6f9f67e55p-1, 0x1.e9b5e8d00ce77p-16},
    {0x1.ffff7e2c6aea2p-1, 0x1.ba4f035d60e03p-16}, {0x1.ffff8b500e77cp-1, 0x1.8f4ccca7fc90dp-16},
    {0x1.ffff972be5c59p-1, 0x1.684c227fcacefp-16}, {0x1.ffffa1de8c582p-1, 0x1.44f21e49054f2p-16},
    {0x1.ffffab83e54b8p-1, 0x1.24eb7254ccf83p-16}, {0x1.ffffb43555b5fp-1, 0x1.07ebd2a2d2844p-16},
    {0x1.ffffbc09fa7cdp-1, 0x1.db5ad0b27805cp-17}, {0x1.ffffc316d9edp-1, 0x1.abe09e9144b5ep-17},
    {0x1.ffffc96f1165ep-1, 0x1.80f439b4ee04bp-17}, {0x1.ffffcf23ff5fcp-1, 0x1.5a2adfa0b4bc4p-17},
    {0x1.ffffd4456a10dp-1, 0x1.37231085c7d9ap-17}, {0x1.ffffd8e1a2f22p-1, 0x1.1783ceac2891p-17},
    {0x1.ffffdd05a75eap-1, 0x1.f5f7d88472604p-18}, {0x1.ffffe0bd3e852p-1, 0x1.c282cd3957edap-18},
    {0x1.ffffe41314e06p-1, 0x1.94219bfcb4928p-18}, {0x1.ffffe710d565ep-1, 0x1.6a597219a93dap-18},
    {0x1.ffffe9bf4098cp-1, 0x1.44ba864670882p-18}, {0x1.ffffec2641a9ep-1, 0x1.22df298214423p-18},
    {0x1.ffffee4d01cd6p-1, 0x1.046aeabcfcdecp-18}, {0x1.fffff039f9e8fp-1, 0x1.d21397ead99cbp-19},
    {0x1.fffff1f302bc1p-1, 0x1.a0df0f0c626dcp-19}, {0x1.fffff37d63a36p-1, 0x1.74adc8f4064d3p-19},
    {0x1.fffff4dde0118p-1, 0x1.4d0231928c6f9p-19}, {0x1.fffff618c3da6p-1, 0x1.296a70f414053p-19},
    {0x1.fffff731ee681p-1, 0x1.097f6156f32c5p-19}, {0x1.fffff82cdcf1bp-1, 0x1.d9c73698fb1dcp-20},
    {0x1.fffff90cb3c81p-1, 0x1.a6852c6b58392p-20}, {0x1.fffff9d446cccp-1, 0x1.789fb715aae95p-20},
    {0x1.fffffa8621251p-1, 0x1.4f8c96f26a26ap-20}, {0x1.fffffb248c39dp-1, 0x1.2acee2f5ecdb8p-20},
    {0x1.fffffbb196132p-1, 0x1.09f5cf4dd2877p-20}, {0x1.fffffc2f171e3p-1, 0x1.d9371e2ff7c35p-21},
    {0x1.fffffc9eb76acp-1, 0x1.a4c89e08ef4f3p-21}, {0x1.fffffd01f36afp-1, 0x1.75fa8dbc84becp-21},
    {0x1.fffffd5a2041fp-1, 0x1.4c37c0394d094p-21}, {0x1.fffffda86faa9p-1, 0x1.26f9df8519bd7p-21},
    {0x1.fffffdedf37edp-1, 0x1.05c803e4831c1p-21}, {0x1.fffffe2ba0ea5p-1, 0x1.d06ad6ecdf971p-22},
    {0x1.fffffe62534d4p-1, 0x1.9bc09f112b494p-22}, {0x1.fffffe92ced93p-1, 0x1.6ce1aa3fd7bddp-22},
    {0x1.fffffebdc2ec6p-1, 0x1.43302cc4a0da8p-22}, {0x1.fffffee3cc32cp-1, 0x1.1e1e857adc568p-22},
    {0x1.ffffff0576917p-1, 0x1.fa5b4f49cc6b2p-23}, {0x1.ffffff233ee1dp-1, 0x1.bfd7555a3bd68p-23},
    {0x1.ffffff3d9480fp-1, 0x1.8be4f8f6c951fp-23}, {0x1.ffffff54dab72p-1, 0x1.5dcd669f2cd34p-23},
    {0x1.ffffff6969fb8p-1, 0x1.34ecf8a3c124ap-23}, {0x1.ffffff7b91176p-1, 0x1.10b1488aeb235p-23},
    {0x1.ffffff8b962bep-1, 0x1.e12ee004efc37p-24}, {0x1.ffffff99b79d2p-1, 0x1.a854ea14102a8p-24},
    {0x1.ffffffa62ce54p-1, 0x1.7603bac345f65p-24}, {0x1.ffffffb127525p-1, 0x1.4980cb3c80949p-24},
    {0x1.ffffffbad2affp-1, 0x1.2225b12bffc68p-24}, {0x1.ffffffc355dfdp-1, 0x1.febc107d5efaap-25},
    {0x1.ffffffcad3626p-1, 0x1.c14b2188bcee4p-25}, {0x1.ffffffd169d0cp-1, 0x1.8b0cfce0579ep-25},
    {0x1.ffffffd7344aap-1, 0x1.5b2fe547a134p-25}, {0x1.ffffffdc4ad7ap-1, 0x1.30f93c3699078p-25},
    {0x1.ffffffe0c2bfp-1, 0x1.0bc30c5d52f15p-25}, {0x1.ffffffe4aed5ep-1, 0x1.d5f3a8dea7357p-26},
    {0x1.ffffffe81fc4ep-1, 0x1.9c3517e789488p-26}, {0x1.ffffffeb24467p-1, 0x1.6961b8d641d06p-26},
    {0x1.ffffffedc95e7p-1, 0x1.3cab1343d18d1p-26}, {0x1.fffffff01a8b6p-1, 0x1.155a09065d4f7p-26},
    {0x1.fffffff221f3p-1, 0x1.e59890b926c78p-27}, {0x1.fffffff3e8892p-1, 0x1.a8e405e651ab6p-27},
    {0x1.fffffff57632dp-1, 0x1.7397c5a66e307p-27}, {0x1.fffffff6d1e56p-1, 0x1.44d26de513197p-27},
    {0x1.fffffff801c1fp-1, 0x1.1bcca373b7b43p-27}, {0x1.fffffff90b2e3p-1, 0x1.efac5187b2863p-28},
    {0x1.fffffff9f2e9fp-1, 0x1.b0a68a2128babp-28}, {0x1.fffffffabd229p-1, 0x1.7974e743dea3dp-28},
    {0x1.fffffffb6d844p-1, 0x1.4924a74dec729p-28}, {0x1.fffffffc0748fp-1, 0x1.1edfa3c5f5ccap-28},
    {0x1.fffffffc8d462p-1, 0x1.f3d2185e047d9p-29}, {0x1.fffffffd01f89p-1, 0x1.b334fac4b9f99p-29},
    {0x1.fffffffd678edp-1, 0x1.7ac2d72fc2c63p-29}, {0x1.fffffffdbff2ap-1, 0x1.4979ac8b28927p-29},
    {0x1.fffffffe0cd16p-1, 0x1.1e767bce37dd7p-29}, {0x1.fffffffe4fa3p-1, 0x1.f1e3523b41d7dp-30},
    {0x1.fffffffe89b0cp-1, 0x1.b0778b7b3301bp-30}, {0x1.fffffffebc1a9p-1, 0x1.77756ec9f78fap-30},
    {0x1.fffffffee7dc8p-1, 0x1.45ce65699ff6dp-30}, {0x1.ffffffff0dd2bp-1, 0x1.1a94ff571654fp-30},
    {0x1.ffffffff2ebdap-1, 0x1.e9f1ff8ddd774p-31}, {0x1.ffffffff4b453p-1, 0x1.a887bd2b4404dp-31},
    {0x1.ffffffff63fc3p-1, 0x1.6fab63324088ap-31}, {0x1.ffffffff79626p-1, 0x1.3e44e45301b92p-31},
    {0x1.ffffffff8be77p-1, 0x1.135f28f2d50b4p-31}, {0x1.ffffffff9bec8p-1, 0x1.dc479de0ef001p-32},
    {0x1.ffffffffa9c63p-1, 0x1.9baed3ed27ab8p-32}, {0x1.ffffffffb5be5p-1, 0x1.63ac6b4edc88ep-32},
    {0x1.ffffffffc014ep-1, 0x1.332259185f1ap-32}, {0x1.ffffffffc901cp-1, 0x1.0916f04b6e18bp-32},
    {0x1.ffffffffd0b56p-1, 0x1.c960bf23153ep-33}, {0x1.ffffffffd759dp-1, 0x1.8a61745ec7d1dp-33},
    {0x1.ffffffffdd13cp-1, 0x1.53e4f7d1666cbp-33}, {0x1.ffffffffe202dp-1, 0x1.24caf2c32af14p-33},
    {0x1.ffffffffe642ap-1, 0x1.f830c0bb41fd7p-34}, {0x1.ffffffffe9ebp-1, 0x1.b1e5acf351d87p-34},
    {0x1.ffffffffed10ap-1, 0x1.7538c60a04476p-34}, {0x1.ffffffffefc57p-1, 0x1.40dfd87456f4cp-34},
    {0x1.fffffffff218fp-1, 0x1.13bc07e891491p-34}, {0x1.fffffffff4188p-1, 0x1.d9a880f306bd8p-35},
    {0x1.fffffffff5cfdp-1, 0x1.96a0b33f2c4dap-35}, {0x1.fffffffff748ep-1, 0x1.5ce9ab1670dd2p-35},
    {0x1.fffffffff88c5p-1, 0x1.2b3e53538ff3fp-35}, {0x1.fffffffff9a1bp-1, 0x1.0084ff125639dp-35},
    {0x1.fffffffffa8f6p-1, 0x1.b7937d1c40c53p-36}, {0x1.fffffffffb5bp-1, 0x1.7872d9fa10aadp-36},
    {0x1.fffffffffc095p-1, 0x1.423ac0df49a4p-36}, {0x1.fffffffffc9e8p-1, 0x1.13af4f04f9998p-36},
    {0x1.fffffffffd1e1p-1, 0x1.d77f0c82e7641p-37}, {0x1.fffffffffd8b3p-1, 0x1.92ff33023d5bdp-37},
    {0x1.fffffffffde86p-1, 0x1.5847eda620959p-37}, {0x1.fffffffffe38p-1, 0x1.25f9ee0b923dcp-37},
    {0x1.fffffffffe7cp-1, 0x1.f5cc7718082bp-38}, {0x1.fffffffffeb6p-1, 0x1.ac0f5f3229372p-38},
    {0x1.fffffffffee77p-1, 0x1.6cfa9bcca59dcp-38}, {0x1.ffffffffff11ap-1, 0x1.370ab8327af5ep-38},
    {0x1.ffffffffff359p-1, 0x1.08f24085d4597p-38}, {0x1.ffffffffff542p-1, 0x1.c324c20e337dcp-39},
    {0x1.ffffffffff6e3p-1, 0x1.7fe903cdf5855p-39}, {0x1.ffffffffff845p-1, 0x1.46897d4b69fc6p-39},
    {0x1.ffffffffff973p-1, 0x1.159a386b11517p-39}, {0x1.ffffffffffa73p-1, 0x1.d7c593130dd0bp-40},
    {0x1.ffffffffffb4cp-1, 0x1.90ae4d3405651p-40}, {0x1.ffffffffffc05p-1, 0x1.5422ef5d8949dp-40},
    {0x1.ffffffffffca2p-1, 0x1.20997f73e73ddp-40}, {0x1.ffffffffffd27p-1, 0x1.e9810295890ecp-41},
    {0x1.ffffffffffd98p-1, 0x1.9eee068fa7596p-41}, {0x1.ffffffffffdf8p-1, 0x1.5f8b87a31bd85p-41},
    {0x1.ffffffffffe49p-1, 0x1.29b2933ef4cbcp-41}, {0x1.ffffffffffe8dp-1, 0x1.f7f338086a86bp-42},
    {0x1.ffffffffffec7p-1, 0x1.aa577251ae485p-42}, {0x1.ffffffffffef8p-1, 0x1.68823e52970bep-42},
    {0x1.fffffffffff22p-1, 0x1.30b14dbe876bcp-42}, {0x1.fffffffffff45p-1, 0x1.01647ba798745p-42},
    {0x1.fffffffffff62p-1, 0x1.b2a87e86d0c8ap-43}, {0x1.fffffffffff7bp-1, 0x1.6ed2f2515e933p-43},
    {0x1.fffffffffff9p-1, 0x1.356cd5ce7799ep-43}, {0x1.fffffffffffa2p-1, 0x1.04e15ecc7f3f6p-43},
    {0x1.fffffffffffb1p-1, 0x1.b7b040832f31p-44}, {0x1.fffffffffffbep-1, 0x1.7258610b3b233p-44},
    {0x1.fffffffffffc8p-1, 0x1.37c92babdc2fdp-44}, {0x1.fffffffffffd1p-1, 0x1.065b9616170d4p-44},
    {0x1.fffffffffffd9p-1, 0x1.b950d32467392p-45}, {0x1.fffffffffffdfp-1, 0x1.72fd93e036cdcp-45},
    {0x1.fffffffffffe4p-1, 0x1.37b83c521fe96p-45}, {0x1.fffffffffffe9p-1, 0x1.05ca50205d26ap-45},
    {0x1.fffffffffffedp-1, 0x1.b7807e294781fp-46}, {0x1.ffffffffffffp-1, 0x1.70beaf9c7ffb6p-46},
    {0x1.ffffffffffff3p-1, 0x1.353a6cf7f7fffp-46}, {0x1.ffffffffffff5p-1, 0x1.0330f0fd69921p-46},
    {0x1.ffffffffffff7p-1, 0x1.b24a16b4d09aap-47}, {0x1.ffffffffffff8p-1, 0x1.6ba91ac734786p-47},
    {0x1.ffffffffffff9p-1, 0x1.305e9721d0981p-47}, {0x1.ffffffffffffbp-1, 0x1.fd3de10d62855p-48},
    {0x1.ffffffffffffbp-1, 0x1.a9cc93c25aca9p-48}, {0x1.ffffffffffffcp-1, 0x1.63daf8b4b1e0cp-48},
    {0x1.ffffffffffffdp-1, 0x1.294175802d99ap-48}, {0x1.ffffffffffffdp-1, 0x1.f05e82aae2bb9p-49},
    {0x1.ffffffffffffep-1, 0x1.9e39dc5dd2f7cp-49}, {0x1.ffffffffffffep-1, 0x1.5982008db1304p-49},
    {0x1.ffffffffffffep-1, 0x1.200c898d9ee3ep-49}, {0x1.fffffffffffffp-1, 0x1.e00e9148a1d25p-50},
    {0x1.fffffffffffffp-1, 0x1.8fd4e01891bf8p-50}, {0x1.fffffffffffffp-1, 0x1.4cd9c04158cd7p-50},
    {0x1.fffffffffffffp-1, 0x1.14f4890ff2461p-50}, {0x1.fffffffffffffp-1, 0x1.ccaaea71ab0dfp-51}};

/* With r the multiple of 1/64 nearest to |x| and d = |x| - r: erf(x) = erf(r) + erf'(r) (d + d^2 P(r, d)), P by Taylor's formula up to
 * d^7. Of the polynomial in r^2 that belongs to d^7, 8 bits suffice. As float's erf, it is 1 exactly wherever 1 is the nearest number,
 * and for the last 0.007 before. */
STITCH_INLINE double stitch_erf(double x) {
  const double rounder = StitchFormat<double>::rounder / 64, size = stitch_size(x), shifted = size + rounder;
  const double r = shifted - rounder, d = size - r, z = r * r, square = d * d;
  const unsigned long long row = stitch_bits<unsigned long long>(shifted) & 511;
  const double d3 = stitch_polynomial(z, -1.0 / 3, 2.0 / 3), d4 = stitch_polynomial(z, 1.0 / 2, -1.0 / 3);
  const double d5 = stitch_polynomial(z, 1.0 / 10, -2.0 / 5, 2.0 / 15), d6 = stitch_polynomial(z, -1.0 / 6, 2.0 / 9, -2.0 / 45);
  const double d7 = stitch_polynomial(z, -1.0 / 42, 0.137, -0.06);
  const double p = stitch_multiply_add(r, stitch_polynomial(square, -1.0, d4, d6), d * stitch_polynomial(square, d3, d5, d7));
  const double linear = stitch_erf_rows[row][1] * d;
  const double result = stitch_erf_rows[row][0] + stitch_multiply_add(linear * d, p, linear);
  return stitch_with_sign(size > 5.9140625 ? 1.0 : result, x);
}

/* ---- pow ------------------------------------------------------------------------------------------------------------------------ */

/* -log((k + 181) / 256) in two parts, of which the first is a multiple of 2^-42. */
static const double stitch_log_rows[256][2] = {
    {0x1.630030b3abp-2, -0x1.db623e731aep-45}, {0x1.5d5bddf596p-2, -0x1.a0b2a08a465dcp-47},
    {0x1.57bf753c8dp-2, 0x1.fadedee5d40efp-46}, {0x1.522ae0738ap-2, 0x1.ebe708164c759p-45},
    {0x1.4c9e09e173p-2, -0x1.e20891b0ad8a4p-45}, {0x1.4718dc271cp-2, 0x1.06c18fb4c14c5p-44},
    {0x1.419b423d5fp-2, -0x1.ce379226de3ecp-44}, {0x1.3c25277333p-2, 0x1.83b54b606bd5cp-46},
    {0x1.36b6776be1p-2, 0x1.16ecdb0f177c8p-46}, {0x1.314f1e1d36p-2, -0x1.8e27ad3213cb8p-45},
    {0x1.2bef07cdc9p-2, 0x1.a9cfa4a5004f4p-45}, {0x1.269621134ep-2, -0x1.1b61f10522625p-44},
    {0x1.214456d0ecp-2, -0x1.caf0428b728a3p-44}, {0x1.1bf99635a7p-2, -0x1.1ac89575c2125p-44},
    {0x1.16b5ccbadp-2, -0x1.23299042d74bfp-44}, {0x1.1178e8227ep-2, 0x1.1ef78ce2d07f2p-44},
    {0x1.0c42d67616p-2, 0x1.7188b163ceae9p-45}, {0x1.07138604d6p-2, -0x1.e76324e912b17p-44},
    {0x1.01eae5626cp-2, 0x1.a43dcfade85aep-44}, {0x1.f991c6cb3cp-3, -0x1.90d04cd7cc834p-44},
    {0x1.ef5ade4ddp-3, -0x1.a211565bb8e11p-51}, {0x1.e530effe72p-3, -0x1.fdbdbb13f7c18p-44},
    {0x1.db13db0d48p-3, 0x1.2806a847527e6p-44}, {0x1.d1037f2656p-3, -0x1.84a7e75b6f6e4p-47},
    {0x1.c6ffbc6fp-3, 0x1.ee138d3a69d43p-44}, {0x1.bd087383bep-3, -0x1.d4bc4595412b6p-45},
    {0x1.b31d8575bcp-3, 0x1.c794e562a63cbp-44}, {0x1.a93ed3c8aep-3, -0x1.8724350562169p-45},
    {0x1.9f6c40708ap-3, -0x1.337d94bcd3f43p-44}, {0x1.95a5adcf7p-3, 0x1.7f22858a0ff6fp-47},
    {0x1.8beafeb39p-3, -0x1.73d54aae92cd1p-47}, {0x1.823c16551ap-3, 0x1.e0ddb9a631e83p-46},
    {0x1.7898d85444p-3, 0x1.8e67be3dbaf3fp-44}, {0x1.6f0128b756p-3, 0x1.577390d31ef0fp-44},
    {0x1.6574ebe8c2p-3, -0x1.98c1d34f0f462p-44}, {0x1.5bf406b544p-3, -0x1.27023eb68981cp-46},
    {0x1.527e5e4a1cp-3, -0x1.4e60b8d4b411dp-44}, {0x1.4913d8333cp-3, -0x1.53e43558124c4p-44},
    {0x1.3fb45a5992p-3, 0x1.19713c0cae559p-44}, {0x1.365fcb015ap-3, -0x1.fd3a0afb9691bp-44},
    {0x1.2d1610c868p-3, 0x1.39d6ccb81b4a1p-47}, {0x1.23d712a49cp-3, 0x1.00d238fd3df5cp-46},
    {0x1.1aa2b7e24p-3, -0x1.1ac38dde3b366p-44}, {0x1.1178e8227ep-3, 0x1.1ef78ce2d07f2p-45},
    {0x1.08598b59e4p-3, -0x1.7e5dd7009902cp-45}, {0x1.fe89139dbcp-4, 0x1.56594d82f7a82p-44},
    {0x1.ec739830ap-4, 0x1.11fcba80cdd1p-44}, {0x1.da72763844p-4, 0x1.a89401fa71733p-46},
    {0x1.c885801bc4p-4, 0x1.646d1c65aacd3p-45}, {0x1.b6ac88dad4p-4, 0x1.b1bdff50225c7p-44},
    {0x1.a4e7640b1cp-4, -0x1.e42b6b94407c8p-47}, {0x1.9335e5d594p-4, 0x1.3115c3abd47dap-45},
    {0x1.8197e2f41p-4, -0x1.c0fe460d20041p-44}, {0x1.700d30aeacp-4, 0x1.c1e8da99ded32p-49},
    {0x1.5e95a4d978p-4, 0x1.1cb7ce1d17171p-44}, {0x1.4d3115d208p-4, -0x1.53a2582f4e1efp-48},
    {0x1.3bdf5a7d2p-4, -0x1.19bd0ad125895p-44}, {0x1.2aa04a447p-4, 0x1.7a48ba8b1cb41p-44},
    {0x1.1973bd1464p-4, 0x1.566d154f930b3p-44}, {0x1.08598b59e4p-4, -0x1.7e5dd7009902cp-46},
    {0x1.eea31c0068p-5, 0x1.c3dd83606d891p-44}, {0x1.ccb73cddd8p-5, 0x1.965c36e09f5fep-44},
    {0x1.aaef2d0fbp-5, 0x1.0fc1a353bb42ep-45}, {0x1.894aa149f8p-5, 0x1.9a19a8be97661p-44},
    {0x1.67c94f2d48p-5, 0x1.dac20827cca0cp-44}, {0x1.466aed42ep-5, -0x1.c167375bdfd28p-45},
    {0x1.252f32f8dp-5, 0x1.83e9ae021b67bp-45}, {0x1.0415d89e78p-5, -0x1.dddc7f461c516p-44},
    {0x1.c63d2ec15p-6, -0x1.5439ce030a687p-44}, {0x1.8492528c9p-6, -0x1.aa0ba325a0c34p-45},
    {0x1.432a92598p-6, 0x1.98139928637fep-47}, {0x1.020565893p-6, 0x1.611d27c8e8417p-44},
    {0x1.82448a388p-7, 0x1.4554412c584ep-44}, {0x1.010157588p-7, 0x1.bce251998b506p-44},
    {0x1.008055958p-8, 0x1.166afcb31c67bp-45}, {0, 0}, {-0x1.ff00aa2bp-9, -0x1.0bc04a086b56ap-45},
    {-0x1.fe02a6b1p-8, -0x1.9e23f0dda40e4p-46}, {-0x1.7dc475f82p-7, 0x1.eb1245b5da1f5p-44},
    {-0x1.fc0a8b0fcp-7, -0x1.f1e7cf6d3a69cp-50}, {-0x1.3cea44347p-6, 0x1.6a2c432d6a40bp-44},
    {-0x1.7b91b07d6p-6, 0x1.3b955b602ace4p-44}, {-0x1.b9fc027bp-6, 0x1.b9a010ae6922ap-44},
    {-0x1.f829b0e78p-6, -0x1.980267c7e09e4p-45}, {-0x1.1b0d98924p-5, 0x1.3401e9ae889bbp-44},
    {-0x1.39e87b9fe8p-5, -0x1.eafd480ad9015p-44}, {-0x1.58a5bafc9p-5, 0x1.b2b739570ad39p-45},
    {-0x1.77458f633p-5, 0x1.181dce586af09p-44}, {-0x1.95c830ec9p-5, 0x1.c148297c5feb8p-45},
    {-0x1.b42dd71198p-5, 0x1.c827ae5d6704cp-46}, {-0x1.d276b8adbp-5, -0x1.6a423c78a64bp-46},
    {-0x1.f0a30c0118p-5, 0x1.d599e83368e91p-45}, {-0x1.075983599p-4, 0x1.b8ecfe4b59987p-44},
    {-0x1.16536eea38p-4, 0x1.47c5e768fa309p-46}, {-0x1.253f62f0ap-4, -0x1.416f8fb69a701p-44},
    {-0x1.341d7961bcp-4, -0x1.1d0929983761p-44}, {-0x1.42edcbea64p-4, -0x1.bc0eeea7c9acdp-46},
    {-0x1.51b073f06p-4, -0x1.83f69278e686ap-44}, {-0x1.60658a9374p-4, -0x1.0c3b1dee9c4f8p-44},
    {-0x1.6f0d28ae58p-4, 0x1.4b4641b664613p-44}, {-0x1.7da766d7bp-4, -0x1.2cc844480c89bp-44},
    {-0x1.8c345d6318p-4, -0x1.b20f5acb42a66p-44}, {-0x1.9ab4246204p-4, 0x1.8a64826787061p-45},
    {-0x1.a926d3a4acp-4, -0x1.563650bd22a9cp-44}, {-0x1.b78c82bb1p-4, 0x1.25ef7bc3987e7p-44},
    {-0x1.c5e548f5bcp-4, -0x1.d0c57585fbe06p-46}, {-0x1.d4313d66ccp-4, 0x1.9454379135713p-45},
    {-0x1.e27076e2bp-4, 0x1.a342c2af0003cp-45}, {-0x1.f0a30c0118p-4, 0x1.d599e83368e91p-44},
    {-0x1.fec9131dcp-4, 0x1.54555d1ae6607p-44}, {-0x1.0671512ca6p-3, 0x1.a47579cdc0a3dp-45},
    {-0x1.0d77e7cd08p-3, -0x1.cb2cd2ee2f482p-44}, {-0x1.1478584674p-3, -0x1.563451027c75p-46},
    {-0x1.1b72ad52f6p-3, -0x1.e80a41811a396p-45}, {-0x1.2266f190a6p-3, 0x1.4d20ab840e7f6p-45},
    {-0x1.29552f82p-3, 0x1.5b967f4471dfcp-44}, {-0x1.303d718e48p-3, 0x1.680b5ce3ecb05p-50},
    {-0x1.371fc201e8p-3, -0x1.ee8779b2d8abcp-44}, {-0x1.3dfc2b0eccp-3, -0x1.8a72a62b8c13fp-45},
    {-0x1.44d2b6ccb8p-3, 0x1.70cc16135783cp-46}, {-0x1.4ba36f39a6p-3, 0x1.4354bb3f219e5p-44},
    {-0x1.526e5e3a1cp-3, 0x1.790ba37fc5238p-44}, {-0x1.59338d9982p-3, -0x1.0ba68b7555d4ap-48},
    {-0x1.5ff3070a7ap-3, 0x1.8586f183bebf2p-44}, {-0x1.66acd4272ap-3, -0x1.aa1bdbfc6c785p-44},
    {-0x1.6d60fe719ep-3, 0x1.bc6e557134767p-44}, {-0x1.740f8f5404p-3, 0x1.0b66c99018aa1p-44},
    {-0x1.7ab890210ep-3, 0x1.bdb9072534a58p-45}, {-0x1.815c0a1436p-3, 0x1.02a52f9201ce8p-44},
    {-0x1.87fa06520cp-3, -0x1.22120401202fcp-44}, {-0x1.8e928de886p-3, -0x1.a8154b13d72d5p-44},
    {-0x1.9525a9cf46p-3, 0x1.297137d9f158fp-44}, {-0x1.9bb362e7ep-3, 0x1.1f2a8a1ce0ffcp-45},
    {-0x1.a23bc1fe2cp-3, 0x1.539cd91dc9f0bp-44}, {-0x1.a8becfc882p-3, -0x1.e3185cf21b9cfp-44},
    {-0x1.af3c94e80cp-3, 0x1.a4e633fcd9066p-52}, {-0x1.b5b519e8fcp-3, 0x1.4b722ec011f31p-44},
    {-0x1.bc286742d8p-3, -0x1.9ac53f39d121cp-44}, {-0x1.c2968558c2p-3, 0x1.cfd73dee38a4p-45},
    {-0x1.c8ff7c79aap-3, 0x1.7794f689f8434p-45}, {-0x1.cf6354e09cp-3, -0x1.771239a07d55bp-45},
    {-0x1.d5c216b4fcp-3, 0x1.1ba91bbca681bp-45}, {-0x1.dc1bca0abep-3, -0x1.8fac1a628ccc6p-44},
    {-0x1.e27076e2bp-3, 0x1.a342c2af0003cp-44}, {-0x1.e8c0252aa6p-3, 0x1.6805b80e8e6ffp-45},
    {-0x1.ef0adcbdc6p-3, 0x1.b26b79c86af24p-45}, {-0x1.f550a564b8p-3, 0x1.323e3a09202fep-45},
    {-0x1.fb9186d5e4p-3, 0x1.d572aab993c87p-47}, {-0x1.00e6c45ad5p-2, -0x1.cc68d52e01203p-50},
    {-0x1.0402594b4dp-2, -0x1.036b89ef42d7fp-48}, {-0x1.071b85fcd6p-2, 0x1.bcb8ba3e01a11p-44},
    {-0x1.0a324e2739p-2, -0x1.c6bee7ef4030ep-47}, {-0x1.0d46b579abp-2, -0x1.d2c81f640e1e6p-44},
    {-0x1.1058bf9ae5p-2, 0x1.4ab9d817d52cdp-44}, {-0x1.136870293bp-2, 0x1.d3e8499d67123p-44},
    {-0x1.1675cababap-2, -0x1.8380e731f55c4p-44}, {-0x1.1980d2dd42p-2, -0x1.b7b3a7a361c9ap-45},
    {-0x1.1c898c169ap-2, 0x1.81410e5c62affp-44}, {-0x1.1f8ff9e48ap-2, -0x1.7946c040cbe77p-45},
    {-0x1.22941fbcf8p-2, 0x1.a6976f5eb0963p-44}, {-0x1.2596010df7p-2, -0x1.8e7bc224ea3e3p-44},
    {-0x1.2895a13de8p-2, -0x1.a8d7ad24c13fp-44}, {-0x1.2b9303ab8ap-2, 0x1.6db12d6bfb0a5p-45},
    {-0x1.2e8e2bae12p-2, 0x1.67b1e99b72bd8p-45}, {-0x1.31871c9544p-2, -0x1.84fab94cecfd9p-46},
    {-0x1.347dd9a988p-2, 0x1.5594dd4c58092p-45}, {-0x1.3772662bfep-2, 0x1.e9436ac53b023p-44},
    {-0x1.3a64c55694p-2, -0x1.7a71cbcd735dp-44}, {-0x1.3d54fa5c1fp-2, -0x1.c3e1cd9a395e3p-44},
    {-0x1.404308686ap-2, -0x1.f8ef43049f7d3p-44}, {-0x1.432ef2a04fp-2, 0x1.fb129931715adp-44},
    {-0x1.4618bc21c6p-2, 0x1.3d82f484c84ccp-46}, {-0x1.4900680401p-2, 0x1.8bccffe1a0f8cp-44},
    {-0x1.4be5f95778p-2, 0x1.d7c92cd9ad824p-44}, {-0x1.4ec97326p-2, -0x1.34d7aaf04d104p-45},
    {-0x1.51aad872ep-2, 0x1.f4bd8db0a7cc1p-44}, {-0x1.548a2c3addp-2, -0x1.3167e63081cf7p-45},
    {-0x1.5767717456p-2, 0x1.64ead9524d7cap-44}, {-0x1.5a42ab0f4dp-2, 0x1.e63af2df7ba69p-50},
    {-0x1.5d1bdbf581p-2, 0x1.8d6bdc9c7c238p-44}, {-0x1.5ff3070a79p-2, -0x1.e9e439f105039p-45},
    {-0x1.62c82f2b9cp-2, -0x1.e54bdbd7c8a98p-44}, {-0x1.659b57303ep-2, -0x1.f281db0af8efcp-46}};

/* stitch_exp_of_rest in two shorter chains: pow waits for results more than for the vector unit. */
STITCH_INLINE double stitch_exp_by_halves(double r) {
  const double z = r * r;
  const double even = stitch_polynomial(z, 0x1.55555555554fap-3, 0x1.1111111127ba5p-7, 0x1.a01a012a66fe8p-13, 0x1.71df253f67fe4p-19,
                                        0x1.ad7f7387c3ce3p-26);
  const double odd = stitch_polynomial(z, 0x1.555555555088cp-5, 0x1.6c16c18426746p-10, 0x1.a0199a16cd55fp-16, 0x1.28ad68b4f3fefp-22);
  return stitch_polynomial(r, 1.0, 1.0, 0x1.000000000000ap-1, stitch_multiply_add(r, odd, even));
}

/* The log in two doubles (about 66 correct bits), since its error is multiplied by up to 745. |x| = 2^exponent (1 + f); `inverse` is a
 * multiple of 1/256 near 1/(1 + f), and 1 if f is near 0. Then log(1 + f) = -log(inverse) + log(1 + r), where r = (1 + f) inverse - 1
 * is exact, and |r| < 0.0046. Of the terms of log(1 + r) only r and r^2/2 need the second double. */
STITCH_INLINE double stitch_pow(double x, double y) {
  typedef StitchFormat<double> F;
  const double size = stitch_size(x);
  const bool small = size < F::smallest_normal;
  const StitchSplit<double> split = stitch_split(small ? size * 0x1p54 : size);
  double exponent = small ? split.exponent - 54.0 : split.exponent;
  exponent = size < __builtin_inf() ? exponent : size;
  exponent = size == 0.0 ? -__builtin_inf() : exponent;
  const double f = split.fraction, rounder = F::rounder / 256 - 181.0 / 256;
  const double shifted =
      stitch_polynomial(f, 0x1.ff50c24374c69p-1, -0x1.02e65b21371cep+0, 0x1.1a479e483a57p+0, -0x1.c65289c9436fep-1) + rounder;
  const unsigned long long row = stitch_bits<unsigned long long>(shifted) & 255;
  const double inverse = shifted - rounder;
#if STITCH_FUSED
  const double r = __builtin_fma(f, inverse, inverse - 1.0);
#else
  const StitchPair scaled = stitch_product(f + 1.0, inverse);
  const double r = (scaled.high - 1.0) + scaled.low;
#endif
  const StitchPair square = stitch_product(r, r);
  const double tail_even = stitch_polynomial(square.high, 0x1.5555555555559p-2, 0x1.99999997b27ebp-3, 0x1.2494a73a6d989p-3);
  const double tail_odd = stitch_polynomial(square.high, -0x1.0000000000005p-2, -0x1.5555555331d4ap-3, -0x1.000254ff39c9cp-3);
  /* `whole` is exact. Of two numbers that are added next, the first is the larger one, or the sum is exact. */
  const double whole = stitch_multiply_add(exponent, F::ln2_high, stitch_log_rows[row][0]), first = whole + r;
  const double log = stitch_multiply_add(square.high, -0.5, first), log_low = stitch_multiply_add(square.high, -0.5, first - log);
  double low = stitch_multiply_add(exponent, F::ln2_low, stitch_log_rows[row][1]) + ((whole - first) + r) + log_low;
  low = stitch_multiply_add(square.high * r, stitch_multiply_add(r, tail_odd, tail_even), low);
  low = stitch_multiply_add(square.low, -0.5, low);
  /* 2^n with |n| up to 1443 is right in two factors, so that one limit is enough on both sides. */
  const StitchPair product = stitch_product(y, log);
  const bool within = stitch_size(product.high) < 1000.0;
  const double t = within ? product.high : stitch_with_sign(1000.0, product.high);
  const StitchReduced<double> reduced = stitch_reduce_exp(size == 1.0 ? 0.0 : t, 2 * F::bias);
  const double rest = reduced.rest + (within ? stitch_multiply_add(y, low, product.low) : 0.0);
  const double power = stitch_scale(stitch_exp_by_halves(rest), reduced.scaled);
  return stitch_power_of_sign(x, y, power, __builtin_trunc(y), __builtin_trunc(y * 0.5));
}

#endif /* STITCHFLEET_KERNEL_TABLES_H_ */
