// What Grafana says a dashboard is, put together from its packages for the panels that are used here. check.sh adds the
// dashboards; TypeScript refuses fields of theirs that are not named, and names fields that they lack.
import * as raw from './node_modules/@grafana/schema/dist/types/raw/dashboard/x/dashboard_types.gen';
import { Options as Stat } from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import { Options as Series, FieldConfig as SeriesField } from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import { Options as Table, FieldConfig as TableField } from './node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import { Prometheus } from './node_modules/@grafana/prometheus/dist/types/dataquery';

// JSON writes enums of strings as their values.
type Json<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends Array<infer U> ? Array<Json<U>> : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
// Options that a panel does not say have Grafana's defaults.
type Some<T> = T extends Array<infer U> ? Array<Some<U>> : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;

type Query = Omit<Json<Prometheus>, 'datasource'> & { datasource: Json<raw.DataSourceRef> };
type Fields<Custom> = {
  defaults: Omit<Json<raw.FieldConfig>, 'custom'> & { custom?: Some<Json<Custom>> };
  overrides: Json<raw.FieldConfigSource>['overrides'];
};
type PanelOf<Type, Options, Custom> = Omit<Json<raw.Panel>, 'type' | 'options' | 'targets' | 'fieldConfig'> &
  { type: Type; options?: Some<Json<Options>>; targets: Query[]; fieldConfig: Fields<Custom> };
type Panel = PanelOf<'stat', Stat, {}> | PanelOf<'timeseries', Series, SeriesField> | PanelOf<'table', Table, TableField>;
type Dashboard = Omit<Json<raw.Dashboard>, 'panels'> & { panels: Panel[] };

const dashboards: Record<string, Dashboard> = {};
