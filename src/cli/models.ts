/** `farebox models`: what is on offer, at which price, and where it runs; and `models pull`. */
import { request } from 'undici';
import { z } from 'zod';
import { Catalog } from '../catalog/catalog.ts';
import { type Config, reachableHost } from '../config/config.ts';
import { SECOND_MS, systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { type LibraryModel, MODEL_LIBRARY } from '../engines/embedded/llama-models.ts';
import { downloadModel, hasModel, modelPath } from '../engines/embedded/model-files.ts';
import { BASE_PATH } from '../server/server.ts';
import { type Cli, guessOf, httpAddress } from './command.ts';
import { type FetchOptions, PROXY, fetchWith, stoppable } from './fetch-command.ts';
import { table } from './terminal.ts';

const LIBRARY_IDS = MODEL_LIBRARY.map(({ id }) => id);
const LIBRARY_ID_WIDTH = Math.max(...LIBRARY_IDS.map((id) => id.length));
const LIBRARY_LINES = MODEL_LIBRARY.map((model) => {
  const facts = `${model.title}, ${shownSize(model)}, ${model.file.license}`;
  return `  ${model.id.padEnd(LIBRARY_ID_WIDTH)}   ${facts}`;
});

export function modelsCommands(cli: Cli): void {
  const models = cli.program
    .command('models')
    .description(`Show the models on offer, their prices, and where they run

Asks the running server; when none listens, shows what the configuration offers. Prices are USD for
1 million tokens, or for the unit that the price names.`)
    .action(async () => {
      const { config } = await cli.settings();
      const { server, models: offered } = await offeredModels(config);
      const shown = offered.map((model) => ({ ...model, runsOn: runsOn(config, model.id) }));
      cli.print(
        { server: server ?? null, models: shown },
        `${headingOf(server)}\n\n${shown.length === 0 ? NO_MODELS : modelTable(shown)}`,
      );
    });
  models
    .command('pull')
    .description(`Fetch a model of the library for the embedded engine

Models of the library:
${LIBRARY_LINES.join('\n')}

A download that was cut goes on where it stopped, and the file takes its name only when its SHA-256
is right. The server loads it at its next start.`)
    .argument('<model>', `Name one model of the library: ${LIBRARY_IDS.join(', ')}`)
    .option(
      '--mirror <url>',
      'takes the place of the host that has the model, such as https://mirror.example/hf',
      httpAddress,
    )
    .option(...PROXY)
    .action(async (id, options) => {
      const model = libraryModel(id);
      const { config } = await cli.settings();
      const path = modelPath(config.dataFolder, model.file);
      const isThere = await hasModel(config.dataFolder, model.file);
      if (!isThere) await fetchModel(cli, config, model, options);
      cli.print(
        { id: model.id, path, fetched: !isThere },
        `${model.title} is ${isThere ? 'already there' : 'ready'}: ${path}\n`,
      );
    });
}

const NO_MODELS =
  'No models. "farebox serve" brings its own and finds engines on local ports;\nconfigured ones go into farebox.yaml\n';

function headingOf(server: string | undefined): string {
  if (server !== undefined) return `Offered by ${server}:`;
  return 'No server listens; the configuration offers:';
}

function modelTable(
  models: readonly (OfferedModel & { readonly runsOn: readonly string[] })[],
): string {
  const rows = models.map((model) => [
    model.id,
    model.type,
    model.contextTokens === undefined ? '-' : String(model.contextTokens),
    shownPrices(model),
    model.traits.join(', ') || '-',
    model.runsOn.join(', '),
    model.offline ? 'offline' : 'online',
  ]);
  const titles = ['MODEL', 'TYPE', 'CONTEXT', 'PRICE', 'TRAITS', 'RUNS ON', 'STATE'];
  return table(titles, rows, ['CONTEXT']);
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
    const word = PRICE_WORDS[key];
    return word === undefined ? [] : [`${usd} ${word}`];
  });
  if (prices.length > 0) return prices.join(', ');
  return model.type === 'video' ? 'by quote' : 'not for sale';
}

/** The configured engines of a model; one that nobody configured runs on this machine. */
function runsOn(config: Config, id: string): readonly string[] {
  const replicas = config.models.find((model) => model.id === id)?.replicas ?? [];
  if (replicas.length === 0) return ['this machine'];
  return replicas.map(({ engine }) => {
    const url = config.engines[engine]?.url;
    return url === undefined ? engine : `${engine} (${URL.parse(url)?.host || url})`;
  });
}

/** A server on the same machine answers at once or is not there. */
const ASK_LIMIT_MS = 2 * SECOND_MS;

const Amount = z.object({ usd: z.number() });

/** A model in the shape of the public `GET /models`. */
const Item = z.object({
  id: z.string(),
  type: z.string(),
  model_spec: z.object({
    offline: z.boolean(),
    traits: z.array(z.string()),
    availableContextTokens: z.number().optional(),
    pricing: z.record(z.string(), z.unknown()).optional(),
  }),
});
const List = z.object({ data: z.array(Item) });

type OfferedModel = ReturnType<typeof modelsOf>[number];

/** The models of the running server, else those of the configuration file. */
export async function offeredModels(config: Config) {
  const running = await askServer(config);
  if (running !== undefined) return running;
  const catalog = new Catalog({ settings: config, clock: systemClock() });
  const body: unknown = JSON.parse(catalog.listBody('all').toString('utf8'));
  return { server: undefined, models: modelsOf(body) };
}

async function askServer({ listen, service }: Config) {
  const server = `http://${reachableHost(listen.host)}:${listen.port}${BASE_PATH}`;
  try {
    const signal = AbortSignal.timeout(ASK_LIMIT_MS);
    const { statusCode, headers, body } = await request(`${server}/models?type=all`, { signal });
    const isOurs = headers[`x-${service.name}-version`] !== undefined;
    if (statusCode === 200 && isOurs) return { server, models: modelsOf(await body.json()) };
    await body.dump();
    return undefined;
  } catch {
    // Nobody listens, or somebody else does: the configuration answers.
    return undefined;
  }
}

function modelsOf(body: unknown) {
  return List.parse(body).data.map(({ id, type, model_spec: spec }) => ({
    id,
    type,
    offline: spec.offline,
    traits: spec.traits,
    contextTokens: spec.availableContextTokens,
    /** USD by the keys of the public list: `input`, `output`, `generation`, … */
    prices: Object.fromEntries(
      Object.entries(spec.pricing ?? {}).flatMap(([key, value]) => {
        const parsed = Amount.safeParse(value);
        return parsed.success ? [[key, parsed.data.usd] as const] : [];
      }),
    ),
  }));
}

/** Some seconds: a person at a machine without internet is told soon. */
const TRIES_WITHOUT_A_BYTE = 4;

async function fetchModel(
  { console }: Cli,
  config: Config,
  model: LibraryModel,
  options: FetchOptions,
): Promise<void> {
  const path = modelPath(config.dataFolder, model.file);
  const { downloads, viewOf, onRetry } = fetchWith(console, config, options);
  const view = viewOf(model.title);
  const maxTries = TRIES_WITHOUT_A_BYTE;
  const parts = { downloads, view, path, clock: systemClock(), log: silentLog, onRetry, maxTries };
  await stoppable(console, (signal) => downloadModel(model.file, { ...parts, signal }));
}

function libraryModel(id: string): LibraryModel {
  const model = MODEL_LIBRARY.find((one) => one.id === id);
  if (model !== undefined) return model;
  const guess = guessOf(id, LIBRARY_IDS);
  throw new Error(`The library has no model "${id}"${guess}; it has ${LIBRARY_IDS.join(', ')}`);
}

function shownSize(model: LibraryModel): string {
  return `${Math.round(model.file.sizeBytes / 1e6)} MB`;
}
