// The part of ECharts that the page draws with; loaded when the first chart is shown.

import { BarChart, BoxplotChart, CandlestickChart, FunnelChart, GaugeChart, HeatmapChart, LineChart, PieChart, RadarChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DatasetComponent,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  MarkPointComponent,
  RadarComponent,
  TitleComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { init, use, type ECharts } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, BoxplotChart, CandlestickChart, FunnelChart, GaugeChart, HeatmapChart, LineChart, PieChart, RadarChart, ScatterChart]);
use([AriaComponent, DatasetComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, MarkPointComponent]);
use([RadarComponent, TitleComponent, TooltipComponent, VisualMapComponent, CanvasRenderer]);

export { init, type ECharts };
