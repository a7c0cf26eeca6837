/**
 * The drawer "Add engine": choose a provider, a found server or a URL, test it, choose models and the
 * markup, see the change of the configuration file, save it, and send a first chat.
 */
import { useState } from 'preact/hooks';
import { ApiError, call } from '../api.ts';
import { countText, durationText, usdText } from '../format.ts';
import { CodeBlock } from '../parts/code.tsx';
import {
  ActionForm,
  ErrorMessage,
  Segments,
  Select,
  TextField,
  useAction,
} from '../parts/form.tsx';
import { Loaded, Notice } from '../parts/loaded.tsx';
import { Overlay } from '../parts/overlay.tsx';
import { costText } from '../playground/parts.tsx';
import { useCall } from '../resource.ts';
import type { ChangedConfig, Cost, EngineChoices, TestedEngine } from '../shapes.ts';

type Provider = EngineChoices['providers'][number];
type Offered = TestedEngine['models'][number];

/** The members of a request that describe the engine. */
interface Engine {
  readonly name: string;
  readonly provider?: string;
  readonly url?: string;
  readonly protocol?: TestedEngine['protocol'];
  readonly key?: { readonly value: string } | { readonly env: string } | 'none';
  readonly settings?: Readonly<Record<string, string>>;
}

export function AddEngine({ close, done }: { close: () => void; done: () => void }) {
  const choices = useCall<EngineChoices>('/admin/engine-setup');
  return (
    <Overlay kind="drawer" title="Add engine" close={close}>
      <Loaded from={choices} rows={5}>
        {(data) => <Steps choices={data} close={close} done={done} />}
      </Loaded>
    </Overlay>
  );
}

interface StepsProps {
  readonly choices: EngineChoices;
  readonly close: () => void;
  readonly done: () => void;
}

function Steps({ choices, close, done }: StepsProps) {
  const [engine, setEngine] = useState<Engine>();
  const [tested, setTested] = useState<TestedEngine>();
  const [sold, setSold] = useState<readonly Offered[]>();
  if (sold !== undefined) return <FirstCall sold={sold} close={close} />;
  const change = (): void => {
    setEngine(undefined);
    setTested(undefined);
  };
  return (
    <>
      {choices.readOnly !== null && (
        <Notice tone="warn">
          <p>{choices.readOnly}.</p>
        </Notice>
      )}
      <EngineForm
        choices={choices}
        changed={change}
        tested={(given, result) => {
          setTested(result);
          const url = given.url === undefined ? {} : { url: given.url + result.path };
          const protocol = given.provider === undefined ? { protocol: result.protocol } : {};
          setEngine({ ...given, ...url, ...protocol });
        }}
      />
      {tested !== undefined && <TestResult tested={tested} />}
      {engine !== undefined && tested?.ok === true && (
        <Sale
          key={tested.latencyMs}
          engine={engine}
          tested={tested}
          digest={choices.digest}
          saved={(models) => {
            done();
            setSold(models);
          }}
        />
      )}
    </>
  );
}

const OTHER = 'url:';
const KEY_KINDS = [
  ['value', 'Enter the key'],
  ['env', 'Environment variable'],
  ['none', 'No key'],
] as const;
type KeyKind = (typeof KEY_KINDS)[number][0];

interface EngineFormProps {
  readonly choices: EngineChoices;
  readonly changed: () => void;
  readonly tested: (engine: Engine, result: TestedEngine) => void;
}

function EngineForm({ choices, changed, tested }: EngineFormProps) {
  const { providers, found, engines } = choices;
  const first = found[0];
  const [choice, setChoice] = useState(first === undefined ? OTHER : OTHER + first.url);
  const [name, setName] = useState(freeName(first?.name ?? 'gpu', engines));
  const [url, setUrl] = useState(first?.url ?? '');
  const [keyKind, setKeyKind] = useState<KeyKind>('none');
  const [key, setKey] = useState('');
  const [variable, setVariable] = useState('');
  const [settings, setSettings] = useState<Readonly<Record<string, string>>>({});
  const [priceList, setPriceList] = useState('');
  const action = useAction();
  const provider = providers.find((one) => one.name === choice);
  const choose = (next: string): void => {
    const known = providers.find((one) => one.name === next);
    const server = found.find((one) => OTHER + one.url === next);
    setChoice(next);
    setName(freeName(known?.name ?? server?.name ?? 'gpu', engines));
    setUrl(server?.url ?? '');
    setKeyKind(known === undefined ? 'none' : known.isKeySet ? 'env' : 'value');
    setVariable(known?.keyVariable ?? '');
    setKey('');
    setSettings({});
    changed();
  };
  const test = (): void => {
    const filled = Object.entries(settings).filter(([, value]) => value.trim() !== '');
    const given: Engine = {
      name: name.trim(),
      ...(provider !== undefined && { provider: provider.name }),
      ...(url.trim() !== '' && { url: url.trim() }),
      ...keyOf(provider, keyKind, keyKind === 'env' ? variable.trim() : key.trim()),
      ...(filled.length > 0 && { settings: Object.fromEntries(filled) }),
    };
    const list = priceList.trim() === '' ? {} : { priceList: priceList.trim() };
    changed();
    void action.run(async () => {
      const body = { ...given, ...list };
      const path = '/admin/engine-setup/test';
      tested(given, await call<TestedEngine>(path, { method: 'POST', body }));
    });
  };
  const edit =
    <T,>(set: (value: T) => void) =>
    (value: T): void => {
      set(value);
      changed();
    };
  return (
    <ActionForm action={action} submit={test} label={action.isRunning ? 'Testing…' : 'Test'}>
      <Select
        label="Engine"
        value={choice}
        options={[
          ...found.map((one) => [OTHER + one.url, `${one.name} at ${one.url}`] as const),
          [OTHER, 'Another URL'],
          ...providers.map((one) => [one.name, one.name] as const),
        ]}
        onInput={choose}
      />
      {(provider === undefined || provider.url !== null) && (
        <TextField
          label="URL"
          hint={
            provider === undefined
              ? 'Base URL of the server, such as http://10.0.0.5:8000/v1.'
              : `Default: ${provider.url}`
          }
          value={url}
          required={provider === undefined}
          onInput={edit(setUrl)}
        />
      )}
      <TextField
        label="Name"
        hint="The name of the engine in the configuration."
        value={name}
        required
        onInput={edit(setName)}
      />
      {provider?.needs.flat().map((one) => (
        <TextField
          key={one}
          label={one}
          hint={hintOf(provider, one)}
          value={settings[one] ?? ''}
          onInput={edit((value) => setSettings({ ...settings, [one]: value }))}
        />
      ))}
      {provider === undefined || provider.keyVariable !== null ? (
        <>
          <Select
            label="Key"
            value={keyKind}
            options={KEY_KINDS}
            onInput={edit((kind: string) => setKeyKind(kind as KeyKind))} // one of the options
          />
          {keyKind === 'value' && (
            <TextField
              label="Key of the engine"
              type="password"
              autoComplete="off"
              hint="The key is written to the configuration file, and is masked in the console."
              value={key}
              required
              onInput={edit(setKey)}
            />
          )}
          {keyKind === 'env' && (
            <TextField
              label="Variable"
              hint="The environment of the server must contain it."
              value={variable}
              required
              onInput={edit(setVariable)}
            />
          )}
        </>
      ) : (
        <Secrets provider={provider} settings={settings} change={edit(setSettings)} />
      )}
      <details>
        <summary>Price list</summary>
        <TextField
          label="URL of a price list"
          hint="Default: the price file of the configuration, otherwise the public list of LiteLLM."
          value={priceList}
          onInput={edit(setPriceList)}
        />
      </details>
    </ActionForm>
  );
}

interface SecretsProps {
  readonly provider: Provider;
  readonly settings: Readonly<Record<string, string>>;
  readonly change: (settings: Readonly<Record<string, string>>) => void;
}

/** Secrets with names of their own, such as the two keys of AWS. */
function Secrets({ provider, settings, change }: SecretsProps) {
  return (
    <>
      {Object.entries(provider.secrets).map(([one, variable]) => (
        <TextField
          key={one}
          label={one}
          type="password"
          autoComplete="off"
          hint={`Default: the variable ${variable} of the server.`}
          value={settings[one] ?? ''}
          onInput={(value) => change({ ...settings, [one]: value })}
        />
      ))}
    </>
  );
}

function hintOf({ needs }: Provider, setting: string): string {
  const names = needs.find((one) => one.includes(setting)) ?? [];
  const others = names.filter((one) => one !== setting);
  return others.length === 0 ? 'Required.' : `Required, or ${others.join(' or ')}.`;
}

function keyOf(
  provider: Provider | undefined,
  kind: KeyKind,
  text: string,
): Pick<Engine, 'key'> | undefined {
  if (provider !== undefined && provider.keyVariable === null) return undefined;
  if (kind === 'none') return { key: 'none' };
  return { key: kind === 'env' ? { env: text } : { value: text } };
}

function freeName(name: string, taken: readonly string[]): string {
  let free = name.replaceAll(/[^a-z0-9-]/g, '-');
  for (let at = 2; taken.includes(free); at += 1) free = `${name}-${at}`;
  return free;
}

function TestResult({ tested }: { readonly tested: TestedEngine }) {
  const { ok, problem, note, latencyMs, protocol, models, prices } = tested;
  if (!ok) {
    return (
      <Notice tone="bad">
        <p class="text">The test failed: {problem}.</p>
      </Notice>
    );
  }
  const priced = models.filter(({ isSellable }) => isSellable).length;
  return (
    <Notice tone={note === null ? 'good' : 'warn'}>
      <p>
        The engine responds in {durationText(latencyMs)} by the protocol <code>{protocol}</code> and
        lists {countText(models.length)} models, {countText(priced)} with a published price.
      </p>
      {note !== null && <p>{note}.</p>}
      {prices.problem !== null && <p class="text">{prices.problem}.</p>}
    </Notice>
  );
}

const MANY = 12;
const SHOWN = 60;

interface SaleProps {
  readonly engine: Engine;
  readonly tested: TestedEngine;
  readonly digest: string;
  readonly saved: (sold: readonly Offered[]) => void;
}

function Sale({ engine, tested, digest, saved }: SaleProps) {
  const [chosen, setChosen] = useState<ReadonlyMap<string, Offered>>(new Map());
  const [markupPercent, setMarkup] = useState('20');
  const [wanted, setWanted] = useState('');
  const [tried, setTried] = useState<ChangedConfig>();
  const action = useAction();
  const matching = tested.models.filter(({ id }) =>
    id.toLowerCase().includes(wanted.toLowerCase()),
  );
  const choose = (models: ReadonlyMap<string, Offered>): void => {
    setChosen(models);
    setTried(undefined);
  };
  const send = (isTrial: boolean): void => {
    void action.run(async () => {
      const models = [...chosen.values()].map(({ isSellable: _, ...model }) => model);
      const body = { ...engine, models, markupPercent: markupPercent.trim(), digest, isTrial };
      const path = '/admin/engine-setup';
      const result = await call<ChangedConfig>(path, { method: 'POST', body });
      setTried(result);
      if (!isTrial && result.ok) saved([...chosen.values()]);
    });
  };
  return (
    <section class="stack">
      <h3>Models to sell</h3>
      {tested.models.length > MANY && (
        <TextField label="Find a model" value={wanted} onInput={setWanted} />
      )}
      <fieldset class="settings">
        <legend class="unseen">Models to sell</legend>
        {matching.slice(0, SHOWN).map((model) => (
          <ModelChoice
            key={model.id}
            model={model}
            chosen={chosen.get(model.id)}
            change={(next) => choose(withChoice(chosen, model.id, next))}
          />
        ))}
        {matching.length > SHOWN && (
          <p class="hint">
            {countText(matching.length - SHOWN)} more models. Find them by their name.
          </p>
        )}
      </fieldset>
      <TextField
        label="Markup in percent"
        hint="Added to the prices of the supplier."
        inputMode="decimal"
        value={markupPercent}
        onInput={(text) => {
          setMarkup(text);
          setTried(undefined);
        }}
      />
      {tried?.ok === false && (
        <Notice tone="bad">
          <ul>
            {tried.problems.map((problem) => (
              <li key={problem} class="text">
                {problem}
              </li>
            ))}
          </ul>
        </Notice>
      )}
      {tried?.ok === true && <CodeBlock title="Change of farebox.yaml" text={tried.diff} />}
      <ErrorMessage error={action.error} />
      <p class="row end">
        <button type="button" disabled={action.isRunning} onClick={() => send(true)}>
          Show the change
        </button>
        <button
          type="button"
          class="primary"
          disabled={action.isRunning || tried?.ok !== true}
          onClick={() => send(false)}
        >
          Save
        </button>
      </p>
    </section>
  );
}

function withChoice(
  chosen: ReadonlyMap<string, Offered>,
  id: string,
  model: Offered | undefined,
): ReadonlyMap<string, Offered> {
  const next = new Map(chosen);
  if (model === undefined) next.delete(id);
  else next.set(id, model);
  return next;
}

interface ModelChoiceProps {
  readonly model: Offered;
  readonly chosen: Offered | undefined;
  readonly change: (model: Offered | undefined) => void;
}

/** A model with its price, or with fields for what the price list lacks. */
function ModelChoice({ model, chosen, change }: ModelChoiceProps) {
  const { id, cost, isSellable } = model;
  const set = (facts: Offered['facts'], price: Offered['cost']): void => {
    if (chosen !== undefined)
      change({
        ...chosen,
        facts: { ...chosen.facts, ...facts },
        cost: { ...chosen.cost, ...price },
      });
  };
  return (
    <>
      <label class="check">
        <input
          type="checkbox"
          checked={chosen !== undefined}
          onChange={({ currentTarget }) => change(currentTarget.checked ? model : undefined)}
        />
        <span class="text">
          {id} <span class="soft">{isSellable ? priceText(cost) : 'no published price'}</span>
        </span>
      </label>
      {chosen !== undefined && !isSellable && (
        <div class="fields-row">
          <TextField
            label={`Context of ${id}`}
            hint="Tokens."
            inputMode="numeric"
            value={String(chosen.facts.context ?? '')}
            onInput={(text) => set({ context: Number(text) || undefined }, {})}
          />
          <TextField
            label={`Input price of ${id}`}
            hint="USD per million tokens."
            inputMode="decimal"
            value={chosen.cost?.input ?? ''}
            onInput={(text) => set({}, { input: text.trim() })}
          />
          <TextField
            label={`Output price of ${id}`}
            hint="USD per million tokens."
            inputMode="decimal"
            value={chosen.cost?.output ?? ''}
            onInput={(text) => set({}, { output: text.trim() })}
          />
        </div>
      )}
    </>
  );
}

function priceText(cost: Offered['cost']): string {
  const { input, output, perImage, perSecond, perMillionCharacters, perSearch } = cost ?? {};
  if (input !== undefined) {
    const prices = [input, ...(output === undefined ? [] : [output])];
    return `${prices.map((usd) => usdText(usd)).join(' / ')} per million tokens`;
  }
  const units = [
    [perImage, 'image'],
    [perSecond, 'second'],
    [perMillionCharacters, 'million characters'],
    [perSearch, 'search'],
  ] as const;
  const shown = units.flatMap(([usd, unit]) =>
    usd === undefined ? [] : [`${usdText(usd)} per ${unit}`],
  );
  return shown.join(', ');
}

const PROMPT = 'Say hello in one sentence.';
const TRIES = 30;
const TRY_MS = 1_000;

interface Completion {
  readonly choices: readonly { readonly message: { readonly content: string | null } }[];
  readonly cost?: Partial<Cost>;
}

/** The engine is in the file. Sends a paid chat to the first text model, as a caller would. */
function FirstCall({
  sold,
  close,
}: {
  readonly sold: readonly Offered[];
  readonly close: () => void;
}) {
  const texts = sold.filter(({ facts: { type = 'text' } }) => type === 'text');
  const [model, setModel] = useState(texts[0]?.id ?? '');
  const [completion, setCompletion] = useState<Completion>();
  const action = useAction();
  const send = (): void => {
    setCompletion(undefined);
    void action.run(async () => setCompletion(await firstChat(model)));
  };
  return (
    <>
      <Notice tone="good">
        <p>The configuration is saved. The servers apply it within seconds.</p>
      </Notice>
      {texts.length > 0 && (
        <>
          <Select
            label="Model"
            value={model}
            options={texts.map(({ id }) => [id, id] as const)}
            onInput={setModel}
          />
          <p class="text">
            The test call sends “{PROMPT}” as a request of your account, which pays for it.
          </p>
          {completion !== undefined && (
            <Notice tone="good">
              <p class="text">{completion.choices[0]?.message.content}</p>
              <p class="soft">Cost: {costText(completion.cost)}</p>
            </Notice>
          )}
          <ErrorMessage error={action.error} />
        </>
      )}
      <p class="row end">
        <button type="button" onClick={close}>
          Done
        </button>
        {texts.length > 0 && (
          <button type="button" class="primary" disabled={action.isRunning} onClick={send}>
            {action.isRunning ? 'Calling…' : 'Send a test call'}
          </button>
        )}
      </p>
    </>
  );
}

/** Waits until the server has applied the file. */
async function firstChat(model: string): Promise<Completion> {
  const body = { model, max_tokens: 200, messages: [{ role: 'user', content: PROMPT }] };
  for (let tries = 1; ; tries += 1) {
    try {
      return await call<Completion>('/chat/completions', { method: 'POST', body });
    } catch (error) {
      // Only a model that is not there yet is worth another try.
      if (!(error instanceof ApiError) || error.status !== 404 || tries >= TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, TRY_MS));
    }
  }
}
