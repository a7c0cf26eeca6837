/**
 * A whole server for the fuzzer, with an engine for every kind of work, chains, a search server, a
 * site and all kinds of callers. Limits are high, and callers have much credit, so that requests
 * reach the code after these checks.
 */
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import { sharp } from '../support/sharp.ts';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { TestUpstream } from '../support/test-upstream.ts';
import { systemIds } from '../../src/core/ids.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { STAKING, startAnvil } from '../chains/anvil.ts';
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET, StripeDouble } from '../support/stripe-double.ts';
import { startSolana } from '../chains/solana.ts';
import { type Called, type CallOptions, call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { evmPayment, PAY_TO, signIn } from '../e2e/wallet-fixture.ts';
import { freePort } from '../support/free-port.ts';
import { toneWav } from '../media/clips.ts';
import { startNode } from '../rpc/node.ts';
import { TestWeb } from '../web/test-web.ts';
import { type MediaEngine, startMediaEngine } from './media-engine.ts';
import type { FuzzSource } from './requests.ts';
import type { KnownValues } from './values.ts';

const MANY = 1_000_000_000;
const ENGINE_KEY = 'sk-engine-key-that-nobody-sees';
const WEBHOOK_SECRET = 'webhook-secret-that-nobody-sees';
const RICH_USD = '1000000';
/** Signatures of each kind: some are used, most are mutated before they are sent. */
const SIGNATURES = 12;
/** The network that has a node. */
const NETWORK = 'ethereum-mainnet';
/** Size that background removal accepts. */
const PICTURE_SIZE = 256;

export interface Fixture {
  readonly farebox: TestApp;
  readonly origin: string;
  readonly source: FuzzSource;
  /** Patterns that no response may contain. */
  readonly secrets: readonly string[];
  /** Names of engines and folders, which only the operator may see. */
  readonly addresses: readonly string[];
  readonly log: LogLine[];
  /** Clears recorded requests and log lines. */
  forget(): void;
  stop(): Promise<void>;
}

interface Peers {
  readonly chat: TestUpstream;
  readonly vectors: TestUpstream;
  readonly media: MediaEngine;
  readonly web: TestWeb;
  readonly node: Awaited<ReturnType<typeof startNode>>;
  readonly anvil: Awaited<ReturnType<typeof startAnvil>>;
  readonly solana: Awaited<ReturnType<typeof startSolana>>;
  readonly stripe: StripeDouble;
}

export async function startFixture(): Promise<Fixture> {
  const peers = await startPeers();
  const keys = { gas: generatePrivateKey(), feePayer: systemIds().hex(32) };
  const port = await freePort();
  const log: LogLine[] = [];
  const yaml = await settings(peers, keys);
  const farebox = await startTestApp({ port, yaml, log: memoryLog(log) });
  const origin = `http://127.0.0.1:${port}`;
  const secrets = [
    ENGINE_KEY,
    WEBHOOK_SECRET,
    STRIPE_KEY,
    STRIPE_WEBHOOK_SECRET,
    SHOP_SECRET,
    keys.gas.slice(2),
    keys.feePayer,
    peers.node.url,
  ];
  const addresses = [
    farebox.config.dataFolder,
    ...[
      peers.chat.url,
      peers.vectors.url,
      peers.media.url,
      peers.anvil.rpcUrl,
      peers.solana.rpcUrl,
    ].map((url) => new URL(url).host),
  ];
  return {
    farebox,
    origin,
    source: await sourceOf(farebox, peers, origin),
    secrets,
    addresses,
    log,
    forget: () => {
      for (const list of [peers.chat.seen, peers.vectors.seen, peers.node.requests])
        list.length = 0;
      for (const list of [peers.web.queries, peers.web.asked, log]) list.length = 0;
    },
    stop: async () => {
      try {
        await farebox.stop();
      } finally {
        await stopPeers(peers);
      }
    },
  };
}

async function startPeers(): Promise<Peers> {
  const chat = await TestUpstream.start();
  chat.otherwise = { kind: 'answer', content: 'Hello there', reasoning: 'Hm' };
  const vectors = await TestUpstream.start();
  vectors.otherwise = { kind: 'embeddings' };
  const web = await TestWeb.start();
  web.results = [{ title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls' }];
  const photo = await picture(PICTURE_SIZE);
  web.pages.set('/photo.png', { body: photo, type: 'image/png' });
  web.pages.set('/sound.wav', { body: toneWav('a'), type: 'audio/wav' });
  web.pages.set('/page.html', { body: '<h1>Tides</h1><p>High water', type: 'text/html' });
  web.pages.set('/away', { body: '', status: 302, headers: { location: '/page.html' } });
  web.pages.set('/round', { body: '', status: 302, headers: { location: '/round' } });
  return {
    chat,
    vectors,
    web,
    media: await startMediaEngine(),
    node: await startNode('0x1'),
    anvil: await startAnvil(),
    solana: await startSolana(),
    stripe: await StripeDouble.start(),
  };
}

async function stopPeers(peers: Peers): Promise<void> {
  await peers.chat.kill();
  await peers.vectors.kill();
  await peers.media.close();
  await peers.web.stop();
  await peers.node.close();
  await peers.anvil.stop();
  await peers.solana.stop();
  await peers.stripe.stop();
}

function picture(size: number): Promise<Buffer> {
  const background = { r: 200, g: 60, b: 20 };
  return sharp({ create: { width: size, height: size, channels: 3, background } })
    .png()
    .toBuffer();
}

async function jpeg(): Promise<Buffer> {
  return sharp(await picture(PICTURE_SIZE))
    .jpeg()
    .toBuffer();
}

interface ChainKeys {
  readonly gas: `0x${string}`;
  readonly feePayer: string;
}

const SHOP_SECRET = `whsec_${Buffer.from('secret of the shop').toString('base64')}`;

/** Sections of `farebox.yaml`, one line of JSON each. */
async function settings(peers: Peers, keys: ChainKeys): Promise<string> {
  const { anvil, solana } = peers;
  const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(keys.feePayer, 'hex'));
  const receiver = await generateKeyPairSigner();
  await anvil.fund(privateKeyToAccount(keys.gas).address, 10n ** 20n);
  solana.airdrop(feePayer.address, 10_000_000_000n);
  await solana.setTokens(receiver.address, 0n);
  const payments = {
    stripe: {
      secretKey: STRIPE_KEY,
      webhookSecret: STRIPE_WEBHOOK_SECRET,
      apiUrl: peers.stripe.url,
    },
    shop: { checkoutUrl: 'https://shop.example/pay', webhookSecret: SHOP_SECRET },
    settleWaitSeconds: 2,
    routesPerMinute: {
      topUp: MANY,
      balance: MANY,
      transactions: MANY,
      token: MANY,
      facilitator: MANY,
    },
    base: {
      payTo: PAY_TO,
      rpcUrl: anvil.rpcUrl,
      gasKey: keys.gas,
      maxFeeGwei: 50,
      warnBelowEth: 0,
    },
    solana: {
      payTo: receiver.address,
      rpcUrl: solana.rpcUrl,
      feePayerKey: keys.feePayer,
      warnBelowSol: 0,
    },
    facilitator: { expose: true },
    staking: { rpcUrl: anvil.rpcUrl, contract: STAKING },
  };
  const sections = {
    limits: limits(),
    engines: engines(peers),
    models: models(),
    payments,
    rpc: {
      networks: { [NETWORK]: { upstreams: [{ url: peers.node.url }] } },
      publicNodes: false,
      requestsPerMinute: MANY,
      staffRequestsPerMinute: MANY,
      creditsPerDay: MANY * 1_000,
    },
    search: { provider: 'searxng', url: peers.web.url },
    fetch: { allow: ['127.0.0.0/8'] },
    video: { webhooks: true, webhookSecret: WEBHOOK_SECRET, maxOpenJobs: MANY },
    personas: {
      list: [{ slug: 'sea-dog', name: 'Sea Dog', prompt: 'You are an old sailor.', tags: ['sea'] }],
    },
  };
  const lines = Object.entries(sections).map(
    ([name, value]) => `${name}: ${JSON.stringify(value)}`,
  );
  return lines.join('\n');
}

function limits() {
  const text = { requestsPerMinute: MANY, tokensPerMinute: MANY * 1_000 };
  const plan = {
    text: { XS: text, S: text, M: text, L: text },
    image: MANY,
    audio: MANY,
    embedding: MANY,
    videoQueue: MANY,
    videoRetrieve: MANY,
  };
  return {
    guard: { failures: MANY },
    plans: { paid: plan, staff: plan },
    walletConcurrency: MANY,
    keysPerAccount: MANY,
    keysPerMinute: MANY,
  };
}

function engines({ chat, vectors, media }: Peers) {
  return {
    rack: { url: chat.url, apiKey: ENGINE_KEY },
    vectors: { url: vectors.url, apiKey: ENGINE_KEY },
    studio: { url: `${media.url}/v1`, apiKey: ENGINE_KEY },
    rembg: { protocol: 'rembg', url: `${media.url}/api/remove` },
  };
}

function models() {
  const all = [
    'functionCalling',
    'audioInput',
    'reasoning',
    'reasoningEffort',
    'responseSchema',
    'multipleImages',
    'vision',
    'videoInput',
    'webSearch',
    'logProbs',
  ];
  const price = { input: 1, output: 2 };
  const rack = [{ engine: 'rack' }];
  const studio = [{ engine: 'studio' }];
  return [
    {
      id: 'atlas',
      context: 200_000,
      maxCompletionTokens: 8_192,
      traits: ['default'],
      aliases: ['gpt-4o'],
      capabilities: all,
      price,
      replicas: rack,
    },
    { id: 'plain', context: 4_096, maxCompletionTokens: 64, price, replicas: rack },
    {
      id: 'retired',
      context: 4_096,
      price,
      replicas: rack,
      deprecation: { date: '2020-01-01', autoRemap: false },
    },
    { id: 'leaving', context: 4_096, price, replicas: rack, deprecation: { date: '2099-01-01' } },
    {
      id: 'vectors',
      type: 'embedding',
      price: { input: 1 },
      embedding: { dimensions: 3, customDimensions: true },
      replicas: [{ engine: 'vectors' }],
    },
    {
      id: 'own-ids',
      type: 'embedding',
      price: { input: 1 },
      embedding: { dimensions: 3, tokenIds: 'own' },
      replicas: [{ engine: 'vectors' }],
    },
    {
      id: 'by-resolution',
      type: 'video',
      replicas: studio,
      video: {
        task: 'text-to-video',
        durations: ['5s', '30s'],
        resolutions: ['480p', '720p'],
        aspectRatios: ['16:9', '1:1'],
        audio: true,
        audioConfigurable: true,
        pricing: {
          kind: 'duration-resolution',
          rates: { '480p': 0.012, '720p': { silent: 0.05, sound: 0.07 } },
        },
      },
    },
    {
      id: 'by-piece',
      type: 'video',
      replicas: studio,
      video: {
        task: 'image-to-video',
        durations: ['1 gen'],
        downloadUrl: true,
        pricing: { kind: 'generation', perGeneration: 0.28 },
      },
    },
    {
      id: 'by-token',
      type: 'video',
      replicas: studio,
      video: {
        task: 'reference-to-video',
        durations: ['5s', '-1', 'auto'],
        resolutions: ['720p'],
        aspectRatios: ['16:9', 'adaptive'],
        pricing: { kind: 'tokens', perMillionTokens: 7, perMillionTokensWithReference: 4.3 },
      },
    },
    {
      id: 'larger',
      type: 'video',
      replicas: studio,
      video: {
        task: 'upscale',
        pricing: {
          kind: 'upscale',
          tiers: [{ maxHeight: 2_160, perSecond: 0.01 }],
          maxSourceSeconds: 3,
        },
      },
    },
    {
      id: 'ears',
      type: 'asr',
      price: { perSecond: 0.0001 },
      replicas: [{ engine: 'studio', model: 'whisper-1' }],
    },
    {
      id: 'painter',
      type: 'image',
      price: { perImage: 0.04 },
      image: { edits: true },
      replicas: studio,
    },
    {
      id: 'speaker',
      type: 'tts',
      price: { perMillionCharacters: 15 },
      speech: { maxCharacters: 500 },
      replicas: studio,
    },
    { id: 'guard', type: 'moderation', price: { input: 0.1 }, replicas: studio },
    { id: 'sorter', type: 'rerank', price: { perSearch: 0.002 }, replicas: studio },
    { id: 'scissors', type: 'inpaint', price: { perImage: 0.02 }, replicas: [{ engine: 'rembg' }] },
  ];
}

/** Callers and the ids that they know, created through the API. */
async function sourceOf(farebox: TestApp, peers: Peers, origin: string): Promise<FuzzSource> {
  const rich = await farebox.account(RICH_USD);
  const admin = await farebox.key({ accountId: rich.accountId, kind: 'ADMIN' });
  const operator = await farebox.key({ kind: 'ADMIN' });
  const narrow = await farebox.key({ accountId: rich.accountId, models: ['plain'] });
  const poor = await farebox.account('0.000001');
  const gone = await farebox.key({ accountId: rich.accountId, expiresMs: 1 });
  const wallet = privateKeyToAccount(generatePrivateKey());
  const token = await walletToken(farebox, peers, wallet, origin);
  const times = Array.from({ length: SIGNATURES });
  const bearer = (secret: string): string => `Bearer ${secret}`;
  const payments = await Promise.all(times.map(() => evmPayment(wallet)));
  const urls = await fetchable(peers.web);
  const bodies = rightBodies(urls, payments);
  return {
    document: farebox.app.openApi(),
    files: [await picture(PICTURE_SIZE), await picture(1), await jpeg(), toneWav('a')],
    credentials: {
      authorization: {
        apiKey: [bearer(rich.secret), bearer(admin)],
        adminKey: [bearer(admin), bearer(operator)],
        wallet: [bearer(token)],
      },
      others: [bearer(narrow), bearer(poor.secret), bearer(gone), bearer(farebox.owner.secret)],
      signIns: await Promise.all(times.map(() => signIn(wallet, origin))),
      payments,
    },
    bodies,
    known: {
      ...named(URL_MEMBERS, urls),
      ...named(['address', 'path:wallet'], [wallet.address, wallet.address.toLowerCase()]),
      ...KNOWN_WORDS,
      ...(await madeThings(farebox, { admin, secret: rich.secret, bodies })),
    },
  };
}

/** Tops up the wallet and signs in, with a session for the whole run. */
async function walletToken(
  farebox: TestApp,
  { anvil }: Peers,
  wallet: PrivateKeyAccount,
  origin: string,
): Promise<string> {
  await anvil.mint(wallet.address, 1_000_000_000n);
  const paying = { 'payment-signature': await evmPayment(wallet) };
  await made(farebox, '/x402/top-up', { method: 'POST', headers: paying });
  const headers = { 'sign-in-with-x': await signIn(wallet, origin) };
  const { body } = await made(farebox, '/x402/token', { method: 'POST', headers });
  return String(body.data.token);
}

/** A call that must succeed, otherwise the fixture fails. */
async function made(farebox: TestApp, path: string, options: CallOptions): Promise<Called> {
  const answer = await call(farebox, path, options);
  if (answer.status !== 200) throw new Error(`${path} answered ${answer.status}: ${answer.text}`);
  return answer;
}

interface Makers {
  readonly admin: string;
  readonly secret: string;
  readonly bodies: FuzzSource['bodies'];
}

/** Keys, a receipt and jobs of the rich account, by the names in paths and queries. */
async function madeThings(farebox: TestApp, { admin, secret, bodies }: Makers) {
  const keys = await Promise.all(
    ['a', 'b', 'c'].map((description) =>
      made(farebox, '/api_keys', {
        secret: admin,
        body: { apiKeyType: 'INFERENCE', description },
      }),
    ),
  );
  const [chat] = bodies['/chat/completions'] ?? [];
  const { headers } = await made(farebox, '/chat/completions', { secret, body: chat });
  const jobs = await Promise.all(
    (bodies['/video/queue'] ?? []).map((body) => made(farebox, '/video/queue', { secret, body })),
  );
  const jobIds = jobs.map(({ body }) => String(body.queue_id));
  const tokens = jobs.flatMap(({ body }) =>
    String(body.download_url ?? '')
      .split('/')
      .slice(-1),
  );
  const ids = [...keys.map(({ body }) => String(body.data.id)), headers.get('x-request-id')];
  return {
    ...named(['id', 'path:id', 'query:id', 'query:key'], [...ids, ...jobIds]),
    ...named(['queue_id', 'query:before'], jobIds),
    'path:token': tokens.filter((token) => token !== ''),
  };
}

/** Members with URLs that many bodies have. */
const URL_MEMBERS = [
  'url',
  'file_data',
  'image',
  'image_url',
  'end_image_url',
  'video_url',
  'audio_url',
  'webhook_url',
  'frontal_image_url',
  'reference_image_urls',
  'reference_video_urls',
  'reference_audio_urls',
  'reference_document_urls',
  'scene_image_urls',
];

async function fetchable(web: TestWeb): Promise<string[]> {
  const photo = (await picture(PICTURE_SIZE)).toString('base64');
  const paths = ['/photo.png', '/sound.wav', '/page.html', '/away', '/round', '/none'];
  return [`data:image/png;base64,${photo}`, ...paths.map((path) => web.url + path)];
}

const MODELS = [
  'atlas',
  'plain',
  'gpt-4o',
  'default',
  'retired',
  'leaving',
  'nobody',
  'vectors',
  'own-ids',
  'by-resolution',
  'by-piece',
  'by-token',
  'larger',
  'ears',
  'scissors',
  'painter',
  'speaker',
  'guard',
  'sorter',
  'atlas:enable_web_search=on',
  'atlas:character_slug=sea-dog',
];

const KNOWN_WORDS = {
  ...named(['model', 'models', 'query:model', 'query:modelId'], MODELS),
  ...named(['character_slug', 'path:slug'], ['sea-dog', 'nobody']),
  ...named(['query:from', 'query:to'], ['2026-01-01', '2026-12-31', '2020-02-29']),
  'path:network': [...Array.from({ length: 5 }, () => NETWORK), 'base-mainnet', 'nowhere'],
  method: [
    'eth_blockNumber',
    'eth_chainId',
    'eth_call',
    'eth_getLogs',
    'eth_sendRawTransaction',
    'eth_newFilter',
    'debug_traceTransaction',
    'no_such_method',
  ],
  duration: ['5s', '30s', '1 gen', 'auto', '-1'],
  expiresAt: ['', '2099-01-01', '2027-01-31T12:00:00Z', '2020-01-01'],
};

function named(names: readonly string[], values: readonly unknown[]): KnownValues {
  return Object.fromEntries(names.map((name) => [name, values]));
}

/** Valid bodies. */
function rightBodies([photo = '', ...others]: readonly string[], payments: readonly string[]) {
  const [picture = '', sound = '', page = ''] = others;
  const say = (content: unknown) => [{ role: 'user', content }];
  const films = [
    { model: 'by-resolution', duration: '5s', resolution: '480p', aspect_ratio: '16:9' },
    { model: 'by-piece', duration: '1 gen' },
    { model: 'by-token', duration: '5s', aspect_ratio: '16:9' },
  ];
  const paid = payments.map((header) => JSON.parse(Buffer.from(header, 'base64').toString()));
  const settled = paid.map((payload) => ({
    x402Version: 2,
    paymentPayload: payload,
    paymentRequirements: { ...payload.accepted, maxTimeoutSeconds: 300, extra: {} },
  }));
  return {
    '/chat/completions': [
      { model: 'plain', messages: say('Hello') },
      { model: 'atlas', messages: say('Hello'), stream: true },
      {
        model: 'atlas',
        messages: say([
          { type: 'text', text: 'What is it?' },
          { type: 'image_url', image_url: { url: photo } },
        ]),
      },
      {
        model: 'atlas',
        messages: say(`Read ${page}`),
        svc_parameters: { enable_web_search: 'on', enable_web_scraping: true },
      },
      {
        model: 'atlas',
        messages: say('Call it'),
        tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }],
        svc_parameters: { character_slug: 'sea-dog', strip_thinking_response: true },
      },
    ],
    '/completions': [
      { model: 'plain', prompt: 'The sky is' },
      { model: 'plain', prompt: ['The sky', 'The sea'], n: 2, stream: true },
      { model: 'plain', prompt: [1, 2, 3], max_tokens: 4, echo: true },
    ],
    '/images/generations': [
      { model: 'painter', prompt: 'A lighthouse', n: 2, output_format: 'webp' },
      { prompt: 'A lighthouse', size: '64x64', stream: true },
      { prompt: 'A lighthouse', stream: true, partial_images: 2, response_format: 'url' },
    ],
    '/images/edits': [
      { model: 'painter', prompt: 'Add a lighthouse', images: [{ image_url: photo }] },
      {
        prompt: 'Add one',
        images: [{ image_url: picture }],
        mask: { image_url: picture },
        stream: true,
      },
    ],
    '/audio/speech': [
      { model: 'speaker', input: 'Hello', voice: 'alloy', response_format: 'opus' },
      { input: 'Hello', stream_format: 'sse' },
    ],
    '/moderations': [{ input: ['a', 'b'] }, { input: [{ type: 'text', text: 'a' }] }],
    ...named(
      ['/rerank', '/v1/rerank', '/v2/rerank'],
      [
        { model: 'sorter', query: 'a', documents: ['a', { text: 'b' }], return_documents: true },
        { query: 'a', documents: [{ title: 'b' }], rank_fields: ['title'], top_n: 1 },
      ],
    ),
    '/messages': messages(say, photo),
    '/messages/count_tokens': messages(say, photo),
    '/embeddings': [
      { model: 'vectors', input: ['a', 'b'], encoding_format: 'base64' },
      { model: 'vectors', input: 'a', dimensions: 2 },
      { model: 'own-ids', input: [[1, 2], [3]] },
      { model: 'vectors', input: [1, 2, 3] },
    ],
    '/crypto/rpc/{network}': [
      { jsonrpc: '2.0', id: 1, method: 'eth_blockNumber' },
      { jsonrpc: '2.0', id: 'a', method: 'eth_getBalance', params: ['0x0', 'latest'] },
      [
        { jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] },
        { jsonrpc: '2.0', id: 2, method: 'eth_getLogs', params: [{ fromBlock: '0x1' }] },
      ],
    ],
    '/image/background-remove': [{ image: photo }, { image_url: picture }],
    '/video/quote': films,
    '/video/queue': films.map((film) => ({
      ...film,
      prompt: 'a lighthouse',
      ...seen(film, photo),
    })),
    '/video/transcriptions': [{ url: sound }, { url: sound, response_format: 'text' }],
    '/x402/facilitator/verify': settled,
    '/x402/facilitator/settle': settled,
  };
}

/** Requests of the Messages protocol. */
function messages(say: (content: unknown) => object[], photo: string): object[] {
  const [, type = '', data = ''] = /^data:([^;]+);base64,(.*)$/.exec(photo) ?? [];
  const max_tokens = 64;
  const use = { type: 'tool_use', id: 't1', name: 'f', input: { a: 1 } };
  const result = { type: 'tool_result', tool_use_id: 't1', content: 'found', is_error: false };
  return [
    { model: 'plain', max_tokens, messages: say('Hello') },
    { model: 'atlas', max_tokens, stream: true, system: 'Be brief', messages: say('Hello') },
    {
      model: 'atlas',
      max_tokens,
      thinking: { type: 'enabled', budget_tokens: 2_000 },
      stop_sequences: ['END'],
      messages: say([
        { type: 'text', text: 'What is it?' },
        { type: 'image', source: { type: 'base64', media_type: type, data } },
        { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Notes' } },
      ]),
    },
    {
      model: 'atlas',
      max_tokens,
      tools: [
        { name: 'f', description: 'Does', input_schema: { type: 'object' }, defer_loading: false },
        { type: 'web_search_20250305', name: 'web_search', max_uses: 2 },
      ],
      tool_choice: { type: 'auto', disable_parallel_tool_use: true },
      metadata: { user_id: 'anna' },
      messages: [
        ...say('Call it'),
        { role: 'assistant', content: [{ type: 'text', text: 'Yes' }, use] },
        ...say([result]),
      ],
    },
    {
      model: 'atlas',
      max_tokens,
      output_config: {
        effort: 'low',
        format: { type: 'json_schema', schema: { type: 'object' } },
      },
      messages: say('As JSON'),
    },
  ];
}

/** First image of a video, or its reference images. */
function seen({ model }: { readonly model: string }, photo: string) {
  if (model === 'by-piece') return { image_url: photo };
  return model === 'by-token' ? { reference_image_urls: [photo] } : {};
}
