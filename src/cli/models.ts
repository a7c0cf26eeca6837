/** `farebox models`: what is on offer, at which price, and where it runs; and `models pull`. */
import type { Config } from '../config/config.ts';
import { type LibraryModel, MODEL_LIBRARY } from '../engines/llama/llama-models.ts';
import { downloadFile } from '../engines/local/model-download.ts';
import { hasModel, modelPath } from '../engines/local/model-files.ts';
import { systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { nearestOf } from '../core/nearest.ts';
import { type Command, type Invocation, UsageError, printJson, requireConfig } from './command.ts';
import { type OfferedModel, offeredModels } from './offered-models.ts';
import { table } from './table.ts';
import { drawingOutput } from './terminal.ts';
import { TerminalProgress } from './terminal-progress.ts';
import { isGiven } from './values.ts';

export const modelsCommand: Command = {
  name: 'models',
  summary: 'Show the models on offer, their prices, and where they run',
  usage: 'models',
  details: `
Asks the running server; when none listens, shows what the configuration offers. Prices are USD for
1 million tokens, or for the unit that the price names.`,
  options: {},
  run: listModels,
};

async function listModels(invocation: Invocation): Promise<number> {
  const { stdout } = invocation.console;
  const config = await requireConfig(invocation.console);
  const { server, models } = await offeredModels(config);
  const shown = models.map((model) => ({ ...model, runsOn: runsOn(config, model.id) }));
  if (isGiven(invocation, 'json')) {
    printJson(invocation, { server: server ?? null, models: shown });
    return 0;
  }
  stdout.write(
    server === undefined
      ? 'No server listens; the configuration offers:\n\n'
      : `Offered by ${server}:\n\n`,
  );
  if (shown.length === 0) {
    stdout.write(
      'No models. "farebox serve" brings its own and finds engines on local ports;\nconfigured ones go into farebox.yaml\n',
    );
    return 0;
  }
  const columns = [
    { title: 'MODEL' },
    { title: 'TYPE' },
    { title: 'CONTEXT', align: 'right' },
    { title: 'PRICE' },
    { title: 'TRAITS' },
    { title: 'RUNS ON' },
    { title: 'STATE' },
  ] as const;
  const rows = shown.map((model) => [
    model.id,
    model.type,
    model.contextTokens === undefined ? '-' : String(model.contextTokens),
    shownPrices(model),
    model.traits.join(', ') || '-',
    model.runsOn.join(', '),
    model.offline ? 'offline' : 'online',
  ]);
  stdout.write(table(columns, rows));
  return 0;
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
  return prices.length === 0
    ? model.type === 'video'
      ? 'by quote'
      : 'not for sale'
    : prices.join(', ');
}

/** The configured engines of a model; one that nobody configured runs on this machine. */
function runsOn(config: Config, id: string): readonly string[] {
  const replicas = config.models.find((model) => model.id === id)?.replicas ?? [];
  if (replicas.length === 0) return ['this machine'];
  return replicas.map(({ engine }) => {
    const url = config.engines[engine]?.url;
    return url === undefined ? engine : `${engine} (${hostOf(url)})`;
  });
}

function hostOf(url: string): string {
  return URL.parse(url)?.host || url;
}

const LIBRARY_ID_WIDTH = Math.max(...MODEL_LIBRARY.map(({ id }) => id.length));
const LIBRARY_LINES = MODEL_LIBRARY.map((model) => {
  const facts = `${model.title}, ${shownSize(model)}, ${model.file.license}`;
  return `  ${model.id.padEnd(LIBRARY_ID_WIDTH)}   ${facts}`;
});

export const modelsPullCommand: Command = {
  name: 'models pull',
  takesWords: true,
  summary: 'Fetch a model of the library for the embedded engine',
  usage: 'models pull <model>',
  details: `
Models of the library:
${LIBRARY_LINES.join('\n')}

A download that was cut goes on where it stopped, and the file takes its name only when its SHA-256
is right. The server loads it at its next start.`,
  options: {},
  run: pullModel,
};

async function pullModel(invocation: Invocation): Promise<number> {
  const { console } = invocation;
  const model = requireLibraryModel(invocation);
  const config = await requireConfig(console);
  const path = modelPath(config.dataFolder, model.file);
  const isThere = await hasModel(config.dataFolder, model.file);
  if (!isThere) await fetchModel(invocation, model, path);
  if (isGiven(invocation, 'json')) printJson(invocation, { id: model.id, path, fetched: !isThere });
  else if (isThere) console.stdout.write(`${model.title} is already there: ${path}\n`);
  return 0;
}

async function fetchModel(
  { console }: Invocation,
  model: LibraryModel,
  path: string,
): Promise<void> {
  const progress = new TerminalProgress(model.title, drawingOutput(console.stderr));
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    console.onSignal(signal, () =>
      stop.abort(new Error('Stopped; the next pull goes on from here')),
    );
  }
  try {
    await downloadFile({
      file: model.file,
      path,
      clock: systemClock(),
      log: silentLog,
      signal: stop.signal,
      onProgress: (state) => progress.show(state),
    });
  } catch (error) {
    // The line of the bar is closed before the reason is printed.
    progress.end(`${model.title} was not fetched`);
    throw error;
  }
  progress.end(`${model.title} is ready: ${path}`);
}

function requireLibraryModel({ positionals }: Invocation): LibraryModel {
  const [id, ...rest] = positionals;
  const ids = MODEL_LIBRARY.map((model) => model.id);
  if (id === undefined || rest.length > 0) {
    throw new UsageError(`Name one model of the library: ${ids.join(', ')}`);
  }
  const model = MODEL_LIBRARY.find((one) => one.id === id);
  if (model !== undefined) return model;
  const near = nearestOf(id, ids);
  const guess = near === undefined ? '' : ` (did you mean "${near}"?)`;
  throw new Error(`The library has no model "${id}"${guess}; it has ${ids.join(', ')}`);
}

function shownSize(model: LibraryModel): string {
  return `${Math.round(model.file.sizeBytes / 1e6)} MB`;
}
