/**
 * The engines page: health, circuit breakers, queues and latency of engines and RPC nodes. Each server
 * process reports its own view. The page adds up the loads of engines and lists replicas and nodes once
 * per process.
 */
import { useAddress } from '../address.ts';
import { countText, durationText } from '../format.ts';
import { PageHead } from '../parts/page-head.tsx';
import { CountOf, State, Tile } from '../parts/values.tsx';
import { Empty, Loaded } from '../parts/loaded.tsx';
import { type Column, Table, aside, figure } from '../parts/table.tsx';
import { useCall, useInterval } from '../resource.ts';
import type { EnginesResponse, EnginesView } from '../shapes.ts';
import { AddEngine } from './add-engine.tsx';

const RENEW_MS = 5_000;

/** `open` of the address while an engine is added. */
const NEW = 'new';

export function Engines() {
  const engines = useCall<EnginesResponse>('/admin/engines');
  const address = useAddress();
  useInterval(RENEW_MS, engines.reload);
  return (
    <>
      <PageHead
        title="Engines"
        lead="The engines that run models and the nodes of RPC networks, as each server process sees them. Refreshes every 5 seconds."
      >
        <button type="button" class="primary" onClick={() => address.show(NEW)}>
          Add engine
        </button>
      </PageHead>
      {address.open === NEW && <AddEngine close={address.close} done={engines.reload} />}
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
          note={
            <>
              of {models.length}
              {ready < models.length && (
                <>
                  ; <a href="/console/models">reasons</a>
                </>
              )}
            </>
          }
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
          <p>Add an engine to sell its models.</p>
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
            columns={shown(REPLICA_COLUMNS, views)}
          />
        </section>
      )}
      <RpcTables views={views} />
    </>
  );
}

/** A single process needs no column for its name. */
function shown<T>(columns: readonly Column<T>[], views: readonly EnginesView[]) {
  return columns.filter((column: unknown) => views.length > 1 || column !== PROCESS_COLUMN);
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

const PROCESS_COLUMN: Column<{ readonly process: string }> = aside(
  'Process',
  ({ process }) => process,
);
const REPLICA_COLUMNS: readonly Column<Replica>[] = [
  { name: 'Model', show: ({ model }) => <span class="model">{model}</span> },
  aside('Engine', ({ engine }) => engine),
  PROCESS_COLUMN,
  {
    name: 'Health',
    show: ({ isHealthy }) => <State value={isHealthy ? 'healthy' : 'unavailable'} />,
  },
  {
    name: 'Breaker',
    show: ({ breaker }) => (
      <State value={breaker} tone={{ closed: 'good', open: 'bad', 'half-open': 'warn' }[breaker]} />
    ),
  },
  figure('Running', ({ inFlight }) => countText(inFlight), 'wide'),
  figure('Calls', ({ calls }) => countText(calls), 'wide'),
  figure('Failed', ({ calls, failures }) => <CountOf part={failures} whole={calls} />, 'wide'),
  figure('Latency', ({ latencyMs }) => durationText(latencyMs)),
];

type Network = EnginesView['networks'][number];
type Node = Network['nodes'][number] & { readonly network: string; readonly process: string };

function RpcTables({ views }: Pick<EngineTablesProps, 'views'>) {
  const networks = views.flatMap(({ process, networks: own }) =>
    own.map((network) => ({ ...network, process })),
  );
  if (networks.length === 0) return undefined;
  const nodes = networks.flatMap(({ network, process, nodes: own }) =>
    own.map((node) => ({ ...node, network, process })),
  );
  return (
    <>
      <section>
        <h2>RPC networks</h2>
        <Table
          label="RPC networks"
          rows={networks}
          keyOf={({ network, process }) => `${network} ${process}`}
          columns={shown(NETWORK_COLUMNS, views)}
        />
      </section>
      {nodes.length > 0 && (
        <section>
          <h2>RPC nodes</h2>
          <Table
            label="RPC nodes"
            rows={nodes}
            keyOf={({ network, name, process }) => `${network} ${name} ${process}`}
            columns={shown(NODE_COLUMNS, views)}
          />
        </section>
      )}
    </>
  );
}

const blockText = (block: number | null): string => (block === null ? '–' : countText(block));

const NETWORK_COLUMNS: readonly Column<Network & { readonly process: string }>[] = [
  { name: 'Network', show: ({ network }) => <strong class="text">{network}</strong> },
  PROCESS_COLUMN,
  figure('Served head', ({ head }) => blockText(head)),
  figure('Usable nodes', ({ nodes }) => {
    const usable = nodes.filter(({ state }) => state !== 'disabled').length;
    return `${usable} of ${nodes.length}`;
  }),
];

const NODE_COLUMNS: readonly Column<Node>[] = [
  { name: 'Node', show: ({ name }) => <span class="model">{name}</span> },
  aside('Network', ({ network }) => network),
  PROCESS_COLUMN,
  {
    name: 'State',
    show: ({ state }) => <State value={state === 'last' ? 'used last' : state} />,
  },
  figure('Head', ({ head }) => blockText(head), 'wide'),
  figure('Lag', ({ lag }) => blockText(lag)),
  figure('Requests', ({ calls }) => countText(calls), 'wide'),
  figure('Errors', ({ failures }) => countText(failures), 'wide'),
  figure('p95', ({ p95Ms }) => durationText(p95Ms)),
  figure('Hedges', ({ hedges }) => countText(hedges), 'wide'),
  figure('State from', ({ oldestState }) => blockText(oldestState), 'wide'),
  figure('Logs from', ({ oldestLogs }) => blockText(oldestLogs), 'wide'),
  aside('Missing methods', ({ missingMethods }) => missingMethods.join(', ') || '–'),
];
