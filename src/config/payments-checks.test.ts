/** Invalid addresses, keys and amounts of the payments section are reported with file and line. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatProblem, loadConfig } from './config.ts';
import type { LoadedConfig } from './sections.ts';

const PAY_TO = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
const MISTYPED = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD';
/** The first key of RFC 8032, which is public. */
const SOLANA_KEY = '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60';
const SOLANA_OWNER = 'FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z';
/** A derived USDC account, which has no private key. */
const DERIVED_ACCOUNT = 'HU2S9ByyqbnCD2SVfvr9qoLtDTtyTnMZoMaw1xpr6cTb';

async function load(payments: string): Promise<LoadedConfig> {
  return await loadConfig({
    env: {},
    cwd: '/srv',
    readFile: async (path) => await Promise.resolve(path.endsWith('.yaml') ? payments : undefined),
  });
}

async function refusalOf(payments: string): Promise<string> {
  const loaded = await load(payments);
  assert.ok(!loaded.ok, `accepted: ${payments}`);
  return loaded.problems.map(formatProblem).join('\n');
}

const base = (rest: string): string =>
  `payments:\n  base:\n    rpcUrl: https://base.example\n    ${rest}\n`;
const solana = (rest: string): string =>
  `payments:\n  solana:\n    rpcUrl: https://solana.example\n    ${rest}\n`;

test('a receiver with a wrong EIP-55 checksum is rejected', async () => {
  const said = await refusalOf(base(`payTo: '${MISTYPED}'`));
  assert.match(said, /^farebox\.yaml:4:12: payments\.base\.payTo: /);
  assert.match(said, /EIP-55 checksum/);
  assert.ok(
    !said.includes(PAY_TO),
    'a respelled typing error would be taken for the right address',
  );
});

test('a token or staking contract with a wrong EIP-55 checksum is rejected', async () => {
  assert.match(
    await refusalOf(base(`payTo: '${PAY_TO}'\n    asset: '${MISTYPED}'`)),
    /^farebox\.yaml:5:12: payments\.base\.asset: .*checksum/,
  );
  const staking = `payments:\n  staking: { rpcUrl: 'https://base.example', contract: '${MISTYPED}' }\n`;
  assert.match(
    await refusalOf(staking),
    /^farebox\.yaml:2:\d+: payments\.staking\.contract: .*checksum/,
  );
});

test('a daily credit for stake with more decimals than a balance is rejected', async () => {
  const staking = (usdPerUnit: string): string =>
    `payments:\n  staking: { rpcUrl: 'https://base.example', contract: '${PAY_TO}', usdPerUnit: ${usdPerUnit} }\n`;
  assert.match(
    await refusalOf(staking('0.0000000001')),
    /usdPerUnit: Must have at most 9 decimals/,
  );
  assert.ok((await load(staking('0.000000001'))).ok);
});

test('an address without a checksum causes a warning', async () => {
  for (const [address, warned] of [
    [PAY_TO, 0],
    [PAY_TO.toLowerCase(), 1],
    [`0x${PAY_TO.slice(2).toUpperCase()}`, 1],
    ['0x1111111111111111111111111111111111111111', 0],
  ] as const) {
    const loaded = await load(base(`payTo: '${address}'`));
    assert.ok(loaded.ok, address);
    const warnings = loaded.warnings.map(formatProblem).filter((text) => text.includes('payTo'));
    assert.equal(warnings.length, warned, address);
    for (const text of warnings) {
      assert.match(text, /^farebox\.yaml:4:12: payments\.base\.payTo: .*no checksum/);
    }
  }
});

test('the zero address is rejected as a receiver', async () => {
  assert.match(
    await refusalOf(base(`payTo: '0x${'0'.repeat(40)}'`)),
    /4:12: payments\.base\.payTo/,
  );
});

test('the token is rejected as a receiver', async () => {
  const said = await refusalOf(base(`payTo: '${PAY_TO}'\n    asset: '${PAY_TO}'`));
  assert.match(said, /payments\.base\.payTo: .*token/);
});

test('a Solana receiver must be a public key: 32 bytes and on the curve', async () => {
  const key = `feePayerKey: ${SOLANA_KEY}`;
  for (const [payTo, why] of [
    [DERIVED_ACCOUNT, /not on the Ed25519 curve/],
    [SOLANA_OWNER.slice(0, -2), /32 bytes/],
    ['11111111111111111111111111111111', /this one has no private key/],
    [`${SOLANA_OWNER.slice(0, -1)}0`, /base58/],
  ] as const) {
    const said = await refusalOf(solana(`payTo: ${payTo}\n    ${key}`));
    assert.match(said, /^farebox\.yaml:4:12: payments\.solana\.payTo: /, payTo);
    assert.match(said, why, payTo);
  }
  assert.ok((await load(solana(`payTo: ${SOLANA_OWNER}\n    ${key}`))).ok);
});

test('an invalid private key is rejected, and the message does not contain it', async () => {
  const order = 'fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141';
  for (const key of ['00'.repeat(32), order, 'ff'.repeat(32)]) {
    for (const name of ['gasKey', 'refundKey']) {
      const said = await refusalOf(base(`payTo: '${PAY_TO}'\n    ${name}: '0x${key}'`));
      assert.match(said, new RegExp(`^farebox\\.yaml:5:\\d+: payments\\.base\\.${name}: `));
      assert.ok(!said.includes(key));
    }
  }
  const seed = [...Buffer.from(SOLANA_KEY, 'hex')];
  for (const key of [
    'abc0l'.repeat(10),
    SOLANA_KEY.slice(2),
    `'[${[...seed, ...seed].join(',')}]'`,
    `'[${[300, ...seed.slice(1)].join(',')}]'`,
  ]) {
    const said = await refusalOf(solana(`payTo: ${SOLANA_OWNER}\n    feePayerKey: ${key}`));
    assert.match(said, /^farebox\.yaml:5:18: payments\.solana\.feePayerKey: A Solana key/, key);
    assert.ok(!said.includes(key.slice(5, 15)));
  }
});

test('a rail that the server could not open is rejected', async () => {
  assert.match(
    await refusalOf(solana(`payTo: ${SOLANA_OWNER}`)),
    /^farebox\.yaml:3:5: payments\.solana: .*feePayerKey/,
  );
  assert.ok(
    (
      await load(
        `${solana(`payTo: ${SOLANA_OWNER}`)}  facilitator: { url: 'https://settle.example' }\n`,
      )
    ).ok,
  );
  assert.match(
    await refusalOf('payments:\n  minimumTopUpUsd: 20\n'),
    /^farebox\.yaml:2:20: payments\.minimumTopUpUsd: .*suggestedTopUpUsd/,
  );
  assert.match(
    await refusalOf('payments:\n  maximumTopUpUsd: 7\n'),
    /^farebox\.yaml:2:20: payments\.maximumTopUpUsd: .*suggestedTopUpUsd/,
  );
});

test('`upto` needs a gas key and no external facilitator', async () => {
  const upto = `payTo: '${PAY_TO}'\n    upto: true`;
  assert.match(await refusalOf(base(upto)), /^farebox\.yaml:5:11: payments\.base\.upto: .*gasKey/);
  const gasKey = `gasKey: '0x${'1'.repeat(64)}'`;
  assert.ok((await load(base(`${upto}\n    ${gasKey}`))).ok);
  const facilitator = '  facilitator: { url: https://settles.example }\n';
  const said = await refusalOf(base(`${upto}\n    ${gasKey}`) + facilitator);
  assert.match(said, /payments\.base\.upto/);
});

test('a further network must be built in or complete, and be configured once', async () => {
  const networks = (...list: string[]): string =>
    `payments:\n  networks:\n${list.map((one) => `    - { payTo: '${PAY_TO}', rpcUrl: 'https://node.example', ${one} }\n`).join('')}`;
  for (const [list, problem] of [
    [['network: eip155:137']],
    [
      [
        `network: eip155:999, asset: '${PAY_TO.toLowerCase()}', domain: { name: A, version: '1' }, payTo: '${MISTYPED}'`,
      ],
      /checksum/,
    ],
    [['network: eip155:999'], /networks\[0\]\.network: "eip155:999" is not built in: set "asset"/],
    [[`network: eip155:137, asset: '${PAY_TO}'`], /Needs "domain"/],
    [['network: polygon'], /CAIP-2 id of an EVM chain/],
    [['network: eip155:137', 'network: eip155:137'], /"eip155:137" is configured twice/],
    [['network: eip155:137, minimumTopUpUsd: 20000'], /Must be at most maximumTopUpUsd/],
    [['network: eip155:137, upto: true'], /networks\[0\]\.upto: Needs a "gasKey"/],
  ] as const) {
    const yaml = networks(...list);
    if (problem === undefined) assert.ok((await load(yaml)).ok, yaml);
    else assert.match(await refusalOf(yaml.replace(/payTo: '[^']*', (?=.*payTo)/, '')), problem);
  }
  const many = ['1', '10', '137', '480', '42161', '43114'].map((id) => `network: eip155:${id}`);
  const loaded = await load(networks(...many));
  assert.ok(loaded.ok);
  assert.match(loaded.warnings.map(formatProblem).join(), /the last networks are in its body only/);
});
