/**
 * The models on offer, read in the shape of the public `GET /models`: from the server that listens,
 * else from the configuration alone, which knows no discovered and no embedded models.
 */
import { request } from 'undici';
import { z } from 'zod';
import { BASE_PATH } from '../server/server.ts';
import { Catalog } from '../catalog/catalog.ts';
import { type Config, serviceWords } from '../config/config.ts';
import { SECOND_MS, systemClock } from '../core/clock.ts';

/** A server on the same machine answers at once or is not there. */
const ASK_LIMIT_MS = 2 * SECOND_MS;

const Amount = z.object({ usd: z.number() });

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

export interface OfferedModel {
  readonly id: string;
  readonly type: string;
  readonly offline: boolean;
  readonly traits: readonly string[];
  readonly contextTokens: number | undefined;
  /** USD by the keys of the public list: `input`, `output`, `generation`, … */
  readonly prices: Readonly<Record<string, number>>;
}

export interface Offer {
  /** Where the list comes from: the address of the server, or `undefined` for the configuration. */
  readonly server: string | undefined;
  readonly models: readonly OfferedModel[];
}

export async function offeredModels(config: Config): Promise<Offer> {
  const running = await askServer(config);
  if (running !== undefined) return running;
  const catalog = new Catalog({ settings: config, clock: systemClock() });
  const body: unknown = JSON.parse(catalog.listBody('all').toString('utf8'));
  return { server: undefined, models: modelsOf(body) };
}

async function askServer(config: Config): Promise<Offer | undefined> {
  const { host, port } = config.listen;
  const wild = host === '0.0.0.0' || host === '::';
  const name = wild ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  const server = `http://${name}:${port}${BASE_PATH}`;
  try {
    const signal = AbortSignal.timeout(ASK_LIMIT_MS);
    const { statusCode, headers, body } = await request(`${server}/models?type=all`, { signal });
    const isOurs = headers[`x-${serviceWords(config.service.name).name}-version`] !== undefined;
    if (statusCode === 200 && isOurs) return { server, models: modelsOf(await body.json()) };
    await body.dump();
    return undefined;
  } catch {
    // Nobody listens, or somebody else does: the configuration answers.
    return undefined;
  }
}

function modelsOf(body: unknown): OfferedModel[] {
  return List.parse(body).data.map(({ id, type, model_spec: spec }) => ({
    id,
    type,
    offline: spec.offline,
    traits: spec.traits,
    contextTokens: spec.availableContextTokens,
    prices: Object.fromEntries(
      Object.entries(spec.pricing ?? {}).flatMap(([key, value]) => {
        const parsed = Amount.safeParse(value);
        return parsed.success ? [[key, parsed.data.usd] as const] : [];
      }),
    ),
  }));
}
