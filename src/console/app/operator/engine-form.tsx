/** The form of an engine that is added: provider or URL, name, key and settings, and its test. */
import { useState } from 'preact/hooks';
import { call } from '../api.ts';
import { ActionForm, type FormState, Select, TextField, useForm } from '../parts/form.tsx';
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

interface EngineFormProps {
  readonly choices: EngineChoices;
  readonly changed: () => void;
  readonly tested: (engine: Engine, result: TestedEngine) => void;
}

export function EngineForm({ choices, changed, tested }: EngineFormProps) {
  const { providers, found, engines } = choices;
  const first = found[0];
  const { action, values, set, field } = useForm({
    choice: first === undefined ? OTHER : OTHER + first.url,
    name: freeName(first?.name ?? 'gpu', engines),
    url: first?.url ?? '',
    keyKind: 'none',
    key: '',
    variable: '',
    priceList: '',
  });
  const [settings, setSettings] = useState<Readonly<Record<string, string>>>({});
  const provider = providers.find((one) => one.name === values.choice);
  const choose = (next: string): void => {
    const known = providers.find((one) => one.name === next);
    const server = found.find((one) => OTHER + one.url === next);
    set({
      choice: next,
      name: freeName(known?.name ?? server?.name ?? 'gpu', engines),
      url: server?.url ?? '',
      keyKind: known === undefined ? 'none' : known.isKeySet ? 'env' : 'value',
      variable: known?.keyVariable ?? '',
      key: '',
    });
    setSettings({});
  };
  const test = (): void => {
    const name = values.name.trim();
    const url = values.url.trim();
    const priceList = values.priceList.trim();
    const filled = Object.entries(settings).filter(([, value]) => value.trim() !== '');
    const given: Engine = {
      name,
      ...(provider !== undefined && { provider: provider.name }),
      ...(url !== '' && { url }),
      ...keyOf(provider, values),
      ...(filled.length > 0 && { settings: Object.fromEntries(filled) }),
    };
    changed();
    void action.run(async () => {
      const body = { ...given, ...(priceList !== '' && { priceList }) };
      const path = '/admin/engine-setup/test';
      tested(given, await call<TestedEngine>(path, { method: 'POST', body }));
    });
  };
  return (
    <ActionForm action={action} submit={test} label={action.isRunning ? 'Testing…' : 'Test'}>
      <div onInput={changed}>
        <Select
          label="Engine"
          value={values.choice}
          options={[
            ...found.map((one) => [OTHER + one.url, `${one.name} at ${one.url}`] as const),
            [OTHER, 'Another URL'],
            ...providers.map((one) => [one.name, one.name] as const),
          ]}
          onInput={choose}
        />
        {(provider === undefined || provider.url !== null) && (
          <TextField
            {...field('url')}
            label="URL"
            hint={
              provider === undefined
                ? 'Base URL of the server, such as http://10.0.0.5:8000/v1.'
                : `Default: ${provider.url}`
            }
            required={provider === undefined}
          />
        )}
        <TextField
          {...field('name')}
          label="Name"
          hint="The name of the engine in the configuration."
          required
        />
        {provider?.needs.flat().map((one) => (
          <TextField
            key={one}
            label={one}
            hint={hintOf(provider, one)}
            value={settings[one] ?? ''}
            onInput={(value) => setSettings({ ...settings, [one]: value })}
          />
        ))}
        {hasOwnSecrets(provider) ? (
          <Secrets provider={provider} settings={settings} change={setSettings} />
        ) : (
          <KeyFields kind={values.keyKind} field={field} />
        )}
        <details>
          <summary>Price list</summary>
          <TextField
            {...field('priceList')}
            label="URL of a price list"
            hint="Default: the price file of the configuration, otherwise the public list of LiteLLM."
          />
        </details>
      </div>
    </ActionForm>
  );
}

/** Secrets with names of their own, such as the two keys of AWS, instead of one key. */
function hasOwnSecrets(provider: Provider | undefined): provider is Provider {
  return provider !== undefined && provider.keyVariable === null;
}

interface KeyProps extends Pick<FormState<'keyKind' | 'key' | 'variable'>, 'field'> {
  readonly kind: string;
}

function KeyFields({ kind, field }: KeyProps) {
  return (
    <>
      <Select {...field('keyKind')} label="Key" options={KEY_KINDS} />
      {kind === 'value' && (
        <TextField
          {...field('key')}
          label="Key of the engine"
          type="password"
          autoComplete="off"
          hint="The key is written to the configuration file, and is masked in the console."
          required
        />
      )}
      {kind === 'env' && (
        <TextField
          {...field('variable')}
          label="Variable"
          hint="The environment of the server must contain it."
          required
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
  { keyKind, key, variable }: Readonly<Record<'keyKind' | 'key' | 'variable', string>>,
): Pick<Engine, 'key'> | undefined {
  if (hasOwnSecrets(provider)) return undefined;
  if (keyKind === 'none') return { key: 'none' };
  return { key: keyKind === 'env' ? { env: variable.trim() } : { value: key.trim() } };
}

function freeName(name: string, taken: readonly string[]): string {
  const own = name.replaceAll(/[^a-z0-9-]/g, '-');
  let free = own;
  for (let at = 2; taken.includes(free); at += 1) free = `${own}-${at}`;
  return free;
}
