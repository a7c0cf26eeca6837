/** The form of an engine that is added: provider or URL, name, key and settings, and its test. */
import { useState } from 'preact/hooks';
import { call } from '../api.ts';
import { ActionForm, Select, TextField, useAction } from '../parts/form.tsx';
import type { EngineChoices, TestedEngine } from '../shapes.ts';

type Provider = EngineChoices['providers'][number];

/** The members of a request that describe the engine. */
export interface Engine {
  readonly name: string;
  readonly provider?: string;
  readonly url?: string;
  readonly protocol?: TestedEngine['protocol'];
  readonly key?: { readonly value: string } | { readonly env: string } | 'none';
  readonly settings?: Readonly<Record<string, string>>;
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

export function EngineForm({ choices, changed, tested }: EngineFormProps) {
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
        <KeyFields
          kind={keyKind}
          setKind={edit(setKeyKind)}
          value={keyKind === 'env' ? variable : key}
          setValue={edit(keyKind === 'env' ? setVariable : setKey)}
        />
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

interface KeyProps {
  readonly kind: KeyKind;
  readonly setKind: (kind: KeyKind) => void;
  readonly value: string;
  readonly setValue: (value: string) => void;
}

function KeyFields({ kind, setKind, value, setValue }: KeyProps) {
  return (
    <>
      <Select
        label="Key"
        value={kind}
        options={KEY_KINDS}
        onInput={(chosen) => setKind(chosen as KeyKind)} // one of the options
      />
      {kind === 'value' && (
        <TextField
          label="Key of the engine"
          type="password"
          autoComplete="off"
          hint="The key is written to the configuration file, and is masked in the console."
          value={value}
          required
          onInput={setValue}
        />
      )}
      {kind === 'env' && (
        <TextField
          label="Variable"
          hint="The environment of the server must contain it."
          value={value}
          required
          onInput={setValue}
        />
      )}
    </>
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
