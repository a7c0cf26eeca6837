/** `farebox models`: lists the models on offer with prices and engines; `models pull` downloads one. */
import { request } from 'undici';
import * as z from 'zod';
import { Catalog, type Margin, marginsOf } from '../catalog/catalog.ts';
import { type Config, reachableHost } from '../config/config.ts';
import { SECOND_MS, systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { didYouMean } from '../core/nearest-word.ts';
import { MODEL_LIBRARY } from '../engines/embedded/llama-models.ts';
import { downloadModel, hasModel, modelPath } from '../engines/embedded/model-files.ts';
import { BASE_PATH } from '../server/server.ts';
import { type Cli, httpAddress } from './command.ts';
import { PROXY, fetchWith, stoppable } from './fetch-command.ts';
import { table } from './terminal.ts';

const LIBRARY_IDS = MODEL_LIBRARY.map(({ id }) => id);
const LIBRARY_ID_WIDTH = Math.max(...LIBRARY_IDS.map((id) => id.length));
const LIBRARY_LINES = MODEL_LIBRARY.map(({ id, title, file }) => {
  const megabytes = Math.round(file.sizeBytes / 1e6);
  return `  ${id.padEnd(LIBRARY_ID_WIDTH)}   ${title}, ${megabytes} MB, ${file.license}`;
});
/** A server on the same machine responds within this time or is not running. */
const SERVER_TIMEOUT_MS = 2 * SECOND_MS;
/** Ends the command after some seconds on a machine without internet access. */
const TRIES_WITHOUT_A_BYTE = 4;

export function modelsCommands(cli: Cli): void {
  const models = cli.program
    .command('models')
    .description(`Show the available models with their prices and engines

Queries the running server; if none runs, shows the models of the configuration. Prices are USD per
million tokens, or per the unit that the price names. If replicas have a "cost", the table shows it with
the lowest margin; "farebox --json models" shows the margin of each price.`)
    .action(async () => {
      const { config } = await cli.settings();
      const { server, models: offered } = await offeredModels(config);
      const catalog = new Catalog({ settings: config, clock: systemClock() });
      const shown = offered.map((model) => {
        const own = catalog.get(model.id);
        const margins = own === undefined ? [] : marginsOf(own);
        return { ...model, runsOn: runsOn(config, model.id), margins };
      });
      const heading =
        server === undefined
          ? `No server responds at ${serverUrl(config)}; if yours has another port, set PORT or listen.port. Models of the configuration:`
          : `Models of ${server}:`;
      cli.print(
        { server: server ?? null, models: shown },
        `${heading}\n\n${shown.length === 0 ? NO_MODELS : modelTable(shown)}`,
      );
    });
  models
    .command('pull')
    .description(`Download a library model for the embedded engine

Models of the library:
${LIBRARY_LINES.join('\n')}

An interrupted download continues where it stopped. The command verifies the SHA-256 of the file. The
server loads the model at its next start.`)
    .argument('<model>', LIBRARY_IDS.join(', '))
    .option(
      '--mirror <url>',
      'URL that replaces the host of the model, such as https://mirror.example/hf',
      httpAddress,
    )
    .option(...PROXY)
    .action(async (id, options) => {
      const model = MODEL_LIBRARY.find((one) => one.id === id);
      if (model === undefined) {
        const advice = didYouMean(id, LIBRARY_IDS) || `; it has ${LIBRARY_IDS.join(', ')}`;
        throw new Error(`The library has no model "${id}"${advice}`);
      }
      const { console } = cli;
      const { config } = await cli.settings();
      const path = modelPath(config.dataFolder, model.file);
      const isThere = await hasModel(config.dataFolder, model.file);
      if (!isThere) {
        const { downloads, viewOf, onRetry } = fetchWith(console, config, options);
        const view = viewOf(model.title);
        const maxTries = TRIES_WITHOUT_A_BYTE;
        const parts = { downloads, view, path, clock: systemClock(), log: silentLog };
        await stoppable(console, (signal) =>
          downloadModel(model.file, { ...parts, onRetry, maxTries, signal }),
        );
      }
      cli.print(
        { id, path, fetched: !isThere },
        `${isThere ? 'Already downloaded' : 'Downloaded'}: ${model.title} in ${path}\n`,
      );
    });
}

const NO_MODELS =
  'No models. "farebox serve" starts embedded models and finds engines on local ports;\nconfigure other models in farebox.yaml\n';

function modelTable(
  models: readonly (OfferedModel & {
    readonly runsOn: readonly string[];
    readonly margins: readonly Margin[];
  })[],
): string {
  const hasCosts = models.some(({ margins }) => margins.length > 0);
  const rows = models.map((model) => [
    model.id,
    model.type,
    model.contextTokens === undefined ? '-' : String(model.contextTokens),
    shownPrices(model),
    ...(hasCosts ? shownMargin(model.margins) : []),
    model.traits.join(', ') || '-',
    model.runsOn.join(', '),
    stateOf(model),
  ]);
  const costs = hasCosts ? ['COST', 'LEAST MARGIN'] : [];
  const titles = ['MODEL', 'TYPE', 'CONTEXT', 'PRICE', ...costs, 'TRAITS', 'RUNS ON', 'STATE'];
  return table(titles, rows, ['CONTEXT']);
}

function stateOf({ offline, offlineReason: reason }: OfferedModel): string {
  if (!offline) return 'online';
  return reason === undefined ? 'offline' : `offline: ${reason}`;
}

const PRICE_WORDS: Readonly<Record<string, string>> = {
  input: 'in',
  output: 'out',
  cache_input: 'cached',
  cache_write: 'cache write',
  generation: 'an image',
  per_audio_second: 'a second',
  per_search: 'a search',
  per_request: 'a request',
};

function shownPrices(model: OfferedModel): string {
  const prices = Object.entries(model.prices).flatMap(([key, usd]) => {
    const isSpeech = model.type === 'tts' && key === 'input';
    const word = isSpeech ? 'a million characters' : PRICE_WORDS[key];
    return word === undefined ? [] : [`${usd} ${word}`];
  });
  if (prices.length > 0) return prices.join(', ');
  return model.type === 'video' ? 'by quote' : 'not for sale';
}

/** The standard costs of the first replica with costs, and the lowest margin of all prices. */
function shownMargin(margins: readonly Margin[]): [cost: string, margin: string] {
  const [first] = margins;
  if (first === undefined) return ['-', '-'];
  const { engine, from } = first;
  const standard = margins.filter(
    (one) =>
      one.engine === engine && one.from === from && one.tier === undefined && one.above === 0,
  );
  const costs = standard.map(({ kind, cost }) => `${Number(cost)} ${COST_WORDS[kind] ?? kind}`);
  const least = margins.some(({ percent }) => percent === null)
    ? 'loss'
    : `${Math.min(...margins.map(({ percent }) => percent ?? 0))} %`;
  return [costs.join(', '), least];
}

const COST_WORDS: Readonly<Record<string, string>> = {
  input: 'in',
  output: 'out',
  cacheInput: 'cached',
  cacheWrite: 'cache write',
  perImage: 'an image',
  perSecond: 'a second',
  perSearch: 'a search',
  perRequest: 'a request',
};

/** The configured engines of a model; a model without any is embedded or discovered here. */
function runsOn(config: Config, id: string): readonly string[] {
  const replicas = config.models.find((model) => model.id === id)?.replicas ?? [];
  if (replicas.length === 0) return ['this machine'];
  return replicas.map(({ engine }) => {
    const { url = '', provider } = config.engines[engine] ?? {};
    const where = provider ?? (URL.parse(url)?.host || url);
    return where === '' ? engine : `${engine} (${where})`;
  });
}

const Amount = z.object({ usd: z.number() });

const List = z.object({
  data: z.array(
    z.object({
      id: z.string(),
      type: z.string(),
      model_spec: z.object({
        offline: z.boolean(),
        offlineReason: z.string().optional(),
        traits: z.array(z.string()),
        availableContextTokens: z.number().optional(),
        pricing: z.record(z.string(), z.unknown()).optional(),
      }),
    }),
  ),
});

type OfferedModel = ReturnType<typeof modelsOf>[number];

/** The models of the running server, or those of the configuration if no server runs. */
export async function offeredModels(config: Config) {
  const running = await findServer(config);
  if (running?.list !== undefined) {
    return { server: running.url, models: modelsOf(running.list) };
  }
  const catalog = new Catalog({ settings: config, clock: systemClock() });
  return { server: undefined, models: modelsOf(catalog.listBody('all').toString('utf8')) };
}

/**
 * Looks for a Farebox server at the listen address. `list` is the body of `GET /models`, if the
 * request succeeded.
 */
export async function findServer(config: Config) {
  const { service } = config;
  const url = serverUrl(config);
  try {
    const signal = AbortSignal.timeout(SERVER_TIMEOUT_MS);
    const { statusCode, headers, body } = await request(`${url}/models?type=all`, { signal });
    const isFarebox = headers[`x-${service.name}-version`] !== undefined;
    if (isFarebox && statusCode === 200) return { url, list: await body.text() };
    await body.dump();
    return isFarebox ? { url, list: undefined } : undefined;
  } catch {
    // No server listens, or another program does.
    return undefined;
  }
}

function serverUrl({ listen }: Config): string {
  return `http://${reachableHost(listen.host)}:${listen.port}${BASE_PATH}`;
}

function modelsOf(body: string) {
  return List.parse(JSON.parse(body)).data.map(({ id, type, model_spec: spec }) => ({
    id,
    type,
    offline: spec.offline,
    offlineReason: spec.offlineReason,
    traits: spec.traits,
    contextTokens: spec.availableContextTokens,
    /** USD by name: `input`, `output`, `generation`, … */
    prices: Object.fromEntries(
      Object.entries(spec.pricing ?? {}).flatMap(([key, value]) => {
        const parsed = Amount.safeParse(value);
        return parsed.success ? [[key, parsed.data.usd] as const] : [];
      }),
    ),
  }));
}
