/**
 * The engines page: health, circuit breakers, queues and latency. Each server process reports its own
 * view. The page adds up the loads of engines and lists replicas once per process.
 */
import { useEffect } from 'preact/hooks';
import { countText, durationText, percentText } from '../format.ts';
import { PageHead } from '../parts/page-head.tsx';
import { State, Tile } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, aside, figure } from '../parts/table.tsx';
import { useCall } from '../resource.ts';
import type { EnginesResponse, EnginesView } from '../shapes.ts';

const RENEW_MS = 5_000;

export function Engines() {
  const engines = useCall<EnginesResponse>('/admin/engines');
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) engines.reload();
    }, RENEW_MS);
    return () => clearInterval(timer);
  }, [engines.reload]);
  return (
    <>
      <PageHead
        title="Engines"
        lead="The engines that run models, as each server process sees them. Refreshes every 5 seconds."
      />
      <Loaded from={engines}>
        {({ others, ...own }) => <EngineTables views={[own, ...others]} models={own.models} />}
      </Loaded>
    </>
  );
}

interface EngineTablesProps {
  readonly views: readonly EnginesView[];
  readonly models: EnginesView['models'];
}

function EngineTables({ views, models }: EngineTablesProps) {
  const engines = engineSums(views);
  const replicas = views.flatMap(({ process, engines: own }) =>
    own.flatMap(({ id, replicas: all }) =>
      all.map((replica) => ({ ...replica, engine: id, process })),
    ),
  );
  const unavailable = replicas.filter(
    ({ breaker, isHealthy }) => breaker !== 'closed' || !isHealthy,
  ).length;
  const ready = models.filter(({ id }) =>
    views.every((view) => view.models.some((one) => one.id === id && one.isReady)),
  ).length;
  const queued = engines.reduce((sum, engine) => sum + engine.queued, 0);
  const running = engines.reduce((sum, engine) => sum + engine.inFlight, 0);
  return (
    <>
      <dl class="tiles">
        <Tile name="Engines">{countText(engines.length)}</Tile>
        <Tile
          name="Models ready"
          tone={ready < models.length ? 'warn' : undefined}
          note={`of ${models.length}`}
        >
          {countText(ready)}
        </Tile>
        <Tile
          name="Unavailable replicas"
          tone={unavailable > 0 ? 'bad' : 'good'}
          note={`of ${replicas.length}`}
        >
          {countText(unavailable)}
        </Tile>
        <Tile name="Running calls" note={`${countText(queued)} queued`}>
          {countText(running)}
        </Tile>
      </dl>
      {engines.length === 0 ? (
        <Empty title="No engine is configured or discovered">
          <p>Add one under engines in farebox.yaml.</p>
        </Empty>
      ) : (
        <section>
          <h2>Engines</h2>
          <Table label="Engines" rows={engines} keyOf={({ id }) => id} columns={ENGINE_COLUMNS} />
        </section>
      )}
      {replicas.length > 0 && (
        <section>
          <h2>Replicas</h2>
          <Table
            label="Replicas"
            rows={replicas}
            keyOf={({ engine, model, process }) => `${engine} ${model} ${process}`}
            columns={REPLICA_COLUMNS.filter(
              (column) => views.length > 1 || column !== PROCESS_COLUMN,
            )}
          />
        </section>
      )}
    </>
  );
}

type Engine = EnginesView['engines'][number];
type EngineSum = Pick<Engine, 'id' | 'source' | 'inFlight' | 'queued' | 'connections'>;

/** Adds up the loads of each engine over all processes. */
function engineSums(views: readonly EnginesView[]): readonly EngineSum[] {
  const sums = new Map<string, EngineSum>();
  for (const { id, source, inFlight, queued, connections } of views.flatMap((one) => one.engines)) {
    const sum = sums.get(id) ?? { id, source, inFlight: 0, queued: 0, connections: 0 };
    sums.set(id, {
      ...sum,
      inFlight: sum.inFlight + inFlight,
      queued: sum.queued + queued,
      connections: sum.connections + connections,
    });
  }
  return [...sums.values()];
}

const ENGINE_COLUMNS: readonly Column<EngineSum>[] = [
  { name: 'Engine', show: ({ id }) => <strong class="text">{id}</strong> },
  aside('Source', ({ source }) => source),
  figure('Running', ({ inFlight }) => countText(inFlight)),
  figure('Queued', ({ queued }) => countText(queued)),
  figure('Connections', ({ connections }) => countText(connections), 'wide'),
];

type Replica = Engine['replicas'][number] & { readonly engine: string; readonly process: string };

const PROCESS_COLUMN: Column<Replica> = aside('Process', ({ process }) => process);
const REPLICA_COLUMNS: readonly Column<Replica>[] = [
  { name: 'Model', show: ({ model }) => <span class="model">{model}</span> },
  aside('Engine', ({ engine }) => engine),
  PROCESS_COLUMN,
  {
    name: 'Health',
    show: ({ isHealthy }) => (
      <State value={isHealthy ? 'healthy' : 'unavailable'} tone={isHealthy ? 'good' : 'bad'} />
    ),
  },
  {
    name: 'Breaker',
    show: ({ breaker }) => (
      <State value={breaker} tone={{ closed: 'good', open: 'bad', 'half-open': 'warn' }[breaker]} />
    ),
  },
  figure('Running', ({ inFlight }) => countText(inFlight), 'wide'),
  figure('Calls', ({ calls }) => countText(calls), 'wide'),
  figure(
    'Failed',
    ({ calls, failures }) => (
      <>
        {countText(failures)}{' '}
        {calls > 0 && <span class="soft">({percentText(failures, calls)})</span>}
      </>
    ),
    'wide',
  ),
  figure('Latency', ({ latencyMs }) => durationText(latencyMs)),
];
