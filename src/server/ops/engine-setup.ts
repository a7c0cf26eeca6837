/** Routes with which an operator connects an engine: choices, test, and the change of the file. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type * as z from 'zod';
import { type Config, readSection } from '../../config/config.ts';
import { MINUTE_MS, isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { reasonOf } from '../../core/log.ts';
import type { LocalEngineSource } from '../../engines/embedded/embedded.ts';
import {
  type EngineTest,
  engineEntry,
  isSellable,
  markupFactor,
  modelEntry,
  type OfferedModel,
  offeredModels,
  privacyOf,
  testEngine,
  withEngine,
  withModels,
} from '../../engines/engine-setup.ts';
import { KNOWN_PROVIDERS } from '../../engines/known-providers.ts';
import {
  PUBLIC_PRICE_LIST,
  type PublicPrices,
  listOf,
  publicPrices,
} from '../../engines/price-lists.ts';
import { readBody } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get, post } from '../../http/route.ts';
import type { FeatureParts } from '../feature-parts.ts';
import type { ConfigEditor } from './config-editor.ts';
import type { ChangedConfig } from './config-editor-schema.ts';
import {
  ADD_ENGINE,
  AddEngineRequest,
  ENGINE_CHOICES,
  type EngineChoices,
  TEST_ENGINE,
  TestEngineRequest,
  type TestedEngine,
} from './engine-setup-schema.ts';

const SHOWN_MODELS = 2_000;
/** A provider package is fetched once; the calls themselves take seconds. */
const TEST_LIMIT_MS = 5 * MINUTE_MS;

export interface EngineSetupParts {
  readonly editor: ConfigEditor;
  readonly localEngines: Pick<LocalEngineSource, 'engines'>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Sends and logs the result of a change. */
  readonly sendChange: (
    context: RequestContext,
    isTrial: boolean,
    result: ChangedConfig,
  ) => Promise<void>;
}

type Given = Omit<z.infer<typeof TestEngineRequest>, 'priceList'>;

export function engineSetupRoutes(shared: FeatureParts, parts: EngineSetupParts): Route[] {
  const { editor, sendChange } = parts;
  return [
    get('/admin/engine-setup', 'operator', ENGINE_CHOICES, async (context) => {
      context.set('cache-control', 'no-store');
      await context.json(200, await choices(parts));
    }),
    post('/admin/engine-setup/test', 'operator', TEST_ENGINE, async (context) => {
      const { priceList, ...given } = readBody(context, TestEngineRequest);
      context.set('cache-control', 'no-store');
      await context.json(200, await tested(shared, parts, given, priceList));
    }),
    {
      ...post('/admin/engine-setup', 'operator', ADD_ENGINE, async (context) => {
        const request = readBody(context, AddEngineRequest);
        const { digest, isTrial, models, markupPercent, ...given } = request;
        const engine = given.name;
        const factor = markupFactor(markupPercent) ?? '1';
        const privacy = privacyOf(given.provider === undefined ? given.url : undefined);
        const edit = (text: string): string =>
          withModels(
            withEngine(text, engine, entryOf(given)),
            models.map((model) => modelEntry(model, { engine, factor, privacy })),
          );
        const result = await editor.edit('engines', { digest, isTrial }, edit);
        await sendChange(context, isTrial, result);
      }),
      body: { types: ['application/json'], limitBytes: 2 * 1024 * 1024 },
    },
  ];
}

function knownOf(name: string | undefined) {
  if (name === undefined) return undefined;
  if (Object.hasOwn(KNOWN_PROVIDERS, name)) return KNOWN_PROVIDERS[name];
  throw new Fault('INVALID_REQUEST', { message: `There is no provider "${name}"` });
}

function entryOf({ provider, settings = {}, ...choice }: Given) {
  return engineEntry({
    ...choice,
    known: knownOf(provider),
    settings: Object.entries(settings),
  });
}

async function choices({ editor, localEngines, env }: EngineSetupParts): Promise<EngineChoices> {
  const { digest, readOnly, text } = await editor.state();
  const section = readSection(text, 'engines');
  const engines = typeof section === 'object' && section !== null ? section : {};
  const used = new Set(
    Object.values(engines).map((one: unknown) => (one as { url?: unknown } | null)?.url),
  );
  // Only the processes of this server have a key.
  const found = localEngines.engines().flatMap(({ id, url, apiKey }) => {
    return apiKey !== undefined || used.has(url) ? [] : [{ name: id, url }];
  });
  const providers = Object.entries(KNOWN_PROVIDERS).map(([name, known]) => {
    const { engine, keyEnv, secrets = {}, needs = [] } = known;
    const variables = [...(keyEnv === undefined ? [] : [keyEnv]), ...Object.values(secrets)];
    return {
      name,
      url: typeof engine['url'] === 'string' ? engine['url'] : null,
      keyVariable: keyEnv ?? null,
      isKeySet: variables.length > 0 && variables.every((one) => (env[one] ?? '') !== ''),
      secrets,
      needs: needs.map((names) => [...names]),
    };
  });
  return { digest, readOnly, engines: Object.keys(engines), providers, found };
}

async function tested(
  shared: FeatureParts,
  { editor }: EngineSetupParts,
  given: Given,
  priceList: string | undefined,
): Promise<TestedEngine> {
  const known = knownOf(given.provider);
  const loaded = await editor.load((text) => withEngine(text, given.name, entryOf(given)));
  const nothing = { source: 'url', fetchedAt: null, problem: null } as const;
  const failed = (problem: string, test?: EngineTest): TestedEngine => ({
    ok: false,
    problem,
    note: null,
    latencyMs: test?.latencyMs ?? 0,
    path: test?.path ?? '',
    protocol: test?.protocol ?? 'openai',
    models: [],
    prices: nothing,
  });
  if (!('config' in loaded)) return failed(loaded.problems.join('\n'));
  const isProtocolKnown = known !== undefined || given.protocol !== undefined;
  const [test, prices] = await Promise.all([
    testedNow(loaded.config, given.name, isProtocolKnown, shared),
    pricesFor(shared, editor, priceList),
  ]);
  if (typeof test === 'string') return failed(test);
  if (!test.ok) return failed(test.problem, test);
  const { list, ...facts } = prices;
  const offered = offeredModels(test.models, { engine: given.name, known }, list);
  return {
    ok: true,
    problem: null,
    note: test.note ?? null,
    latencyMs: test.latencyMs,
    path: test.path,
    protocol: test.protocol,
    models: offered.slice(0, SHOWN_MODELS).map(shown),
    prices: facts,
  };
}

function shown({ id, model, facts, cost }: OfferedModel): TestedEngine['models'][number] {
  return { id, model, facts, ...(cost && { cost }), isSellable: isSellable({ facts, cost }) };
}

/** The reason as a text if the packages of a provider cannot be fetched. */
async function testedNow(
  config: Config,
  name: string,
  isProtocolKnown: boolean,
  { clock, ids, log }: FeatureParts,
): Promise<EngineTest | string> {
  const fetching = { downloads: config.downloads };
  const signal = AbortSignal.timeout(TEST_LIMIT_MS);
  try {
    return await testEngine(config, name, isProtocolKnown, { clock, ids, log, signal, fetching });
  } catch (error) {
    // The reason names the registry and the command for a closed network.
    return reasonOf(error);
  }
}

async function pricesFor(
  { config, clock, ids }: FeatureParts,
  editor: ConfigEditor,
  source: string | undefined,
): Promise<PublicPrices & { readonly source: 'priceFile' | 'url' }> {
  const { text, folder } = await editor.state();
  const file = source === undefined ? readSection(text, 'priceFile') : undefined;
  if (typeof file !== 'string') {
    const { dataFolder } = config.current;
    const parts = { dataFolder, source: source ?? PUBLIC_PRICE_LIST, clock, ids };
    return { ...(await publicPrices(parts)), source: 'url' };
  }
  try {
    const list = await listOf(await readFile(resolve(folder, file), 'utf8'));
    return { list, source: 'priceFile', fetchedAt: isoTime(clock.nowMs()), problem: null };
  } catch (error) {
    // The operator sees the reason, and enters prices.
    return { list: [], source: 'priceFile', fetchedAt: null, problem: reasonOf(error) };
  }
}
